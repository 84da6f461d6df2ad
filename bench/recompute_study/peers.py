def measure_peers(*a):
    raise SystemExit
