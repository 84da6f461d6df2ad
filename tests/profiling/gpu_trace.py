"""A small trace as XLA writes it on a GPU: an XSpace with a host plane, CUPTI streams and lines derived from them."""

from pathlib import Path

import jax

PROGRAM = """HloModule jit_train_step, is_scheduled=true

%fused (p: f32[256]) -> f32[256] {
  %p = f32[256]{0} parameter(0)
  ROOT %n = f32[256]{0} negate(%p), metadata={op_name="jit(f)/jvp(layer0/NA/PAP)/neg"}
}

ENTRY %main (x: f32[256]) -> f32[256] {
  %x = f32[256]{0} parameter(0)
  %gemm_fusion.1 = f32[256]{0} add(%x, %x), metadata={op_name="jit(f)/jvp(layer0/FP/paper)/dot_general"}
  %loop_fusion.2 = f32[256]{0} fusion(%gemm_fusion.1), kind=kLoop, calls=%fused
  ROOT %d = f32[256]{0} multiply(%loop_fusion.2, %x), metadata={op_name="jit(f)/transpose(jvp(layer0/NA/PAP))/mul"}
}
"""

_NAMES = (
    "hlo_op", "hlo_module", "correlation_id", "kernel_details", "theoretical_occupancy_pct", "memcpy_details",
    "core_count", "jit_train_step", "gemm_fusion.1", "loop_fusion.2", "d",
)  # fmt: skip
_STATS = {name: number for number, name in enumerate(_NAMES, 1)}
_EVENTS = ("train", "cuLaunchKernel", "gemm_fusion_1", "loop_fusion_2", "d", "MemcpyH2D", "memset")


def _event(name: str, start_us: float, length_us: float, stats: str = "") -> str:
    number = _EVENTS.index(name) + 1
    times = f"offset_ps: {int(start_us * 1e6)} duration_ps: {int(length_us * 1e6)}"
    return f"events {{ metadata_id: {number} {times} {stats} }}"


def _stat(name: str, value: str) -> str:
    return f"stats {{ metadata_id: {_STATS[name]} {value} }}"


def _kernel(name: str, op: str, start_us: float, length_us: float, correlation: int, occupancy: float) -> str:
    details = f"regs:32 static_shared:0 dynamic_shared:0 grid:2,1,1 block:128,1,1 occ_pct:{occupancy}"
    stats = [
        _stat("hlo_op", f"ref_value: {_STATS[op]}"),
        _stat("hlo_module", f"ref_value: {_STATS['jit_train_step']}"),
        _stat("correlation_id", f"uint64_value: {correlation}"),
        _stat("kernel_details", f'str_value: "{details}"'),
        _stat("theoretical_occupancy_pct", f"double_value: {occupancy}"),
    ]
    return _event(name, start_us, length_us, " ".join(stats))


def _metadata() -> str:
    stats = [f'stat_metadata {{ key: {n} value {{ id: {n} name: "{name}" }} }}' for name, n in _STATS.items()]
    events = [f'event_metadata {{ key: {n} value {{ id: {n} name: "{name}" }} }}' for n, name in enumerate(_EVENTS, 1)]
    return "\n".join(stats + events)


def text(streams: bool = True) -> str:
    """Two steps of 100 us: gemm_fusion.1 20, d 10 and a copy 5 us on one stream, loop_fusion.2 30 us on another."""
    host, first, second, derived = [], [], [], []
    for step in range(2):
        at = 100.0 * step
        host.append(_event("train", at, 100))
        launches = (("gemm_fusion_1", "gemm_fusion.1", 10, 20, 50.0), ("loop_fusion_2", "loop_fusion.2", 30, 30, 100.0))
        for place, (name, op, start, length, occupancy) in enumerate((*launches, ("d", "d", 60, 10, 75.0))):
            correlation = 10 * step + place + 1
            stat = _stat("correlation_id", f"uint64_value: {correlation}")
            host.append(_event("cuLaunchKernel", at + start - 4, 1, stat))
            stream = second if name == "loop_fusion_2" else first
            stream.append(_kernel(name, op, at + start, length, correlation, occupancy))
            derived.append(_event(name, at + start, length, _stat("hlo_op", f"ref_value: {_STATS[op]}")))
        first.append(_event("MemcpyH2D", at + 80, 5, _stat("memcpy_details", 'str_value: "size:1024"')))
        first.append(_event("memset", at + 90, 2))
    lines = [
        f'lines {{ id: 13 name: "Stream #13(Compute,MemcpyH2D)" {" ".join(first)} }}',
        f'lines {{ id: 14 name: "Stream #14(Compute)" {" ".join(second)} }}',
    ]
    lines = lines if streams else []
    lines.append(f'lines {{ id: 99 name: "XLA Ops" {" ".join(derived)} }}')
    core = _stat("core_count", "uint64_value: 132")
    return f"""
planes {{ id: 1 name: "/host:CPU" lines {{ id: 1 name: "python" {" ".join(host)} }} {_metadata()} }}
planes {{ id: 2 name: "/device:GPU:0" {core} {" ".join(lines)} {_metadata()} }}
"""


def write(folder: Path, *, streams: bool = True) -> Path:
    """The trace as a serialized XSpace with its program beside; the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    content = jax.profiler.ProfileData.text_proto_to_serialized_xspace(text(streams))
    (folder / "gpu.xplane.pb").write_bytes(content)
    (folder / "step.hlo.txt").write_text(PROGRAM)
    return folder
