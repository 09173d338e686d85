"""SQL of the store that is longer than its call, or the same in several. Every fragment is a constant."""
# ruff: noqa: S608

from latencyprobe.store.schema import COUNT_COLUMNS, KEY_COLUMNS

_INSTANCES_KEPT = 16  # of one node: its agent, and those before it that may still be told that they were heard

# CAST: a blob that damage made text of, and that is no UTF-8, would have every batch with such a row refused
ADD_COUNTS = f"""
    INSERT INTO counts VALUES ({", ".join("?" * (len(COUNT_COLUMNS) + 4))}) ON CONFLICT DO UPDATE SET
    {", ".join(f"{column} = {column} + excluded.{column}" for column in COUNT_COLUMNS)},
    detail = CASE excluded.detail WHEN x'' THEN detail ELSE add_details(CAST(detail AS BLOB), excluded.detail) END
"""
ADD_EXEMPLARS = """
    INSERT INTO exemplars VALUES (?, ?, ?, ?) ON CONFLICT DO UPDATE SET
    exemplars = add_exemplars(CAST(exemplars AS BLOB), excluded.exemplars)
"""
LAST_SEQUENCE = "SELECT sequence FROM instances WHERE node = ? AND instance = ?"
FORGET_INSTANCES = f"""
    DELETE FROM instances WHERE node = ? AND instance NOT IN
    (SELECT instance FROM instances WHERE node = ? ORDER BY minute DESC LIMIT {_INSTANCES_KEPT - 1})
"""
KNOW_INSTANCE = "INSERT OR REPLACE INTO instances VALUES (?, ?, ?, ?)"
BEGIN_SERIES = "UPDATE series SET first_minute = ? WHERE id = ? AND (first_minute IS NULL OR first_minute > ?)"
TIME = "SELECT measured_ms, expected_ms FROM counts WHERE series = ? AND width_s = ? AND start = ?"
BEFORE = "WHERE series IN (SELECT id FROM series) AND width_s = ? AND start < ?"  # by the primary key: no scan
IN_SPAN = "WHERE series = ? AND width_s = ? AND start >= ? AND start < ?"
COUNTS = f"SELECT * FROM counts {IN_SPAN}"
EXEMPLARS = f"SELECT exemplars FROM exemplars {IN_SPAN}"
_OF_KEY = f"WHERE {' AND '.join(f'{column} = ?' for column in KEY_COLUMNS)}"
SERIES = f"SELECT id FROM series {_OF_KEY}"
FIRST_MINUTE = f"SELECT first_minute FROM series {_OF_KEY}"
