"""Heterographs from somebody's tables: CSV and Parquet files, pandas frames and Arrow tables, by one schema in TOML."""

from jhgnn.data.tables.graph import Fitted, from_tables, read_tables
from jhgnn.data.tables.schema_file import SCHEMA_FILE

__all__ = ["SCHEMA_FILE", "Fitted", "from_tables", "read_tables"]
