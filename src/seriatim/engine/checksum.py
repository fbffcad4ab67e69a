"""Of rows: what two ways to the same records must agree in. Bit for bit: a NaN is equal to itself here."""

import hashlib
from collections.abc import Iterable

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from seriatim.errors import DamagedFile
from seriatim.output.parquet import FileRef
from seriatim.store import Store

ROWS = 10_000  # at a time


def checksum(rows: pa.Table) -> str:
    """Of the rows in this order."""
    digest = hashlib.sha256()
    for number, field in enumerate(rows.schema):
        if pa.types.is_timestamp(field.type):  # as integers: not every time that Kafka may hold is one of Python's
            rows = rows.set_column(number, field.name, rows.column(number).cast(pa.int64()))
    for batch in rows.to_batches(max_chunksize=ROWS):
        for row in batch.to_pylist():
            digest.update(msgspec.msgpack.encode(row))
    return f"{rows.num_rows} rows, {digest.hexdigest()}"


def in_order(rows: pa.Table) -> pa.Table:
    return rows.sort_by([("_offset", "ascending"), ("_position", "ascending")])


def read_files(store: Store, files: Iterable[FileRef], schema: pa.Schema) -> pa.Table:
    """The rows of staged files, as the table of this schema shows them, in order: null where a file is older than a
    column."""
    tables = [schema.empty_table()]
    for ref in files:
        data = store.read(ref.path)
        if data is None:
            raise DamagedFile(f"The file {ref.path} is missing.", hint="Restore it from a backup.", path=ref.path)
        found = pq.read_table(pa.BufferReader(data))
        columns = [
            found.column(field.name).cast(field.type)
            if field.name in found.schema.names
            else pa.nulls(found.num_rows, field.type)
            for field in schema
        ]
        tables.append(pa.Table.from_arrays(columns, schema=schema))
    return in_order(pa.concat_tables(tables))
