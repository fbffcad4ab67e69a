"""Changes folded to a table: the newest row of each key, without those that were deleted last."""

from collections.abc import Sequence

import pyarrow as pa


def fold(frame: pa.Table | None, changes: pa.Table, key: Sequence[str]) -> pa.Table:
    """`frame` holds whole rows (the table before the changes, none if it was empty), `changes` those and `_op`. The
    result has the frame's columns that do not begin with an underscore, in the order of the keys."""
    import duckdb

    changes = changes.sort_by([("_offset", "ascending"), ("_position", "ascending")])
    columns = [name for name in changes.column_names if not name.startswith("_")]
    rows = changes.select(columns)
    deleted = pa.chunked_array([[op == "delete" for op in changes.column("_op").to_pylist()]], pa.bool_())
    if frame is not None:
        rows = pa.concat_tables([frame.select(columns), rows])
        deleted = pa.chunked_array([pa.repeat(pa.scalar(False), frame.num_rows), *deleted.chunks], pa.bool_())
    # Only keys and places go through DuckDB, so that every value comes out as the very Arrow type it is stored as.
    keys = rows.select(list(key)).append_column("_place", pa.array(range(rows.num_rows), pa.int64()))
    keys = keys.append_column("_deleted", deleted)
    by = ", ".join(f'"{name}"' for name in key)
    with duckdb.connect() as connection:
        connection.register("keys", keys)
        last = connection.execute(
            f"SELECT max(_place) AS place FROM keys GROUP BY {by} HAVING NOT arg_max(_deleted, _place) ORDER BY {by}"
        ).fetchnumpy()
    return rows.take(pa.array(last["place"], pa.int64())).combine_chunks()
