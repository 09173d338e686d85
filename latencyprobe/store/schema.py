"""Schema of the SQLite store: one migration per version, applied in order. Read by opening.py and sqlite.py only.

Never change a migration that was released; append one. `PRAGMA user_version` is the number of those applied.
"""
# ruff: noqa: S608 - every fragment is a constant

COUNT_COLUMNS = (
    *("good", "bad", "seen", "ambiguous", "excluded", "lost", "records_lost", "joined", "measured_ms", "expected_ms"),
)
KEY_COLUMNS = ("namespace", "probe", "probe_uid", "objective", "hash", "perspective")  # of a series: ObjectiveKey

MIGRATIONS = (
    f"""
    CREATE TABLE series (
        id INTEGER PRIMARY KEY,
        namespace TEXT NOT NULL, probe TEXT NOT NULL, probe_uid TEXT NOT NULL,
        objective TEXT NOT NULL, hash TEXT NOT NULL, perspective TEXT NOT NULL,
        first_minute INTEGER,                 -- NULL: no counts yet
        definition BLOB,                      -- slo.objective.Objective as JSON; NULL: never defined
        retired INTEGER NOT NULL DEFAULT 0,   -- its LatencyProbe no longer has this definition
        UNIQUE (namespace, probe, probe_uid, objective, hash, perspective)
    );
    CREATE TABLE counts (
        series INTEGER NOT NULL REFERENCES series, width_s INTEGER NOT NULL, start INTEGER NOT NULL,
        {"".join(f"{column} INTEGER NOT NULL, " for column in COUNT_COLUMNS)}
        detail BLOB NOT NULL,                 -- packing.Detail
        PRIMARY KEY (series, width_s, start)
    ) WITHOUT ROWID;
    CREATE TABLE exemplars (                  -- hours and days only: names and ids are large
        series INTEGER NOT NULL REFERENCES series, width_s INTEGER NOT NULL, start INTEGER NOT NULL,
        exemplars BLOB NOT NULL,              -- packing.Exemplars
        PRIMARY KEY (series, width_s, start)
    ) WITHOUT ROWID;
    CREATE TABLE instances (                  -- last batch of each agent process
        node TEXT NOT NULL, instance TEXT NOT NULL, sequence INTEGER NOT NULL, minute INTEGER NOT NULL,
        PRIMARY KEY (node, instance)
    ) WITHOUT ROWID;
    CREATE TABLE state (                      -- one row; levels.Horizons, and what was refused
        minutes INTEGER NOT NULL, hours INTEGER NOT NULL, days INTEGER NOT NULL, late_rows INTEGER NOT NULL
    );
    INSERT INTO state VALUES (0, 0, 0, 0);
    """,
    """
    CREATE TABLE asked (                      -- which node was asked to count what, in Unix seconds
        node TEXT NOT NULL, series INTEGER NOT NULL REFERENCES series,
        since INTEGER NOT NULL, last INTEGER NOT NULL,
        PRIMARY KEY (node, series)
    ) WITHOUT ROWID;
    """,
    """
    CREATE TABLE staged (                     -- rows of batches that are not in `counts` yet
        id INTEGER PRIMARY KEY,
        rows BLOB NOT NULL                    -- sli.SliRow, as msgpack
    );
    """,
)
