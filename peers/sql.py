"""TPC-H on Terrace, DuckDB and SQLite, side by side.

    cargo build --release -p terrace-cli --features sql
    pip install duckdb
    python3 peers/sql.py target/release/terrace --dir /path/on/the/disk --out peers.json

All have the same CSV files, and as many threads as there are processors. Each query is run on all of them in turn, several
times; ratios are of medians. Answers are compared with DuckDB's. SQLite has no decimals and no dates: it has floats and
texts, and runs queries 1, 3 and 6 alone.
"""

import argparse
import csv
import io
import json
import os
import pathlib
import re
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import threading
import time

import duckdb

SQLITE_QUERIES = {1, 3, 6}
SQLITE_DATES = [
    (r"date '1998-12-01' - interval '90' day", "'1998-09-02'"),
    (r"date '1994-01-01' \+ interval '1' year", "'1995-01-01'"),
    (r"date ('[0-9-]+')", r"\1"),
    # What decimals compute exactly.
    (r"between 0.06 - 0.01 and 0.06 \+ 0.01", "between 0.05 and 0.07"),
]


class Terrace:
    """A `terrace sql` that is asked over its standard input."""

    def __init__(self, binary, directory, layout):
        self.name = f"terrace {layout}"
        command = [binary, "sql", directory, "--format", "csv", "--timing"]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        self.lines, self.more = [], threading.Condition()
        threading.Thread(target=self.listen, daemon=True).start()

    def listen(self):
        for line in self.process.stdout:
            with self.more:
                self.lines.append(line)

    def ask(self, query):
        with self.more:
            self.lines.clear()
        self.process.stdin.write(query.strip().rstrip(";") + ";\n")
        self.process.stdin.flush()
        for line in self.process.stderr:
            if found := re.fullmatch(r"([0-9.]+) ms\n", line):
                # The rows were written before the time was.
                time.sleep(0.05)
                with self.more:
                    rows = list(csv.reader(io.StringIO("".join(self.lines))))
                return float(found[1]), rows[1:]
            raise SystemExit(f"{self.name}: {line}")
        raise SystemExit(f"{self.name} ended")

    def close(self):
        self.process.stdin.close()
        self.process.wait()


class DuckDb:
    name = "duckdb"

    def __init__(self, directory, files):
        self.connection = duckdb.connect(os.path.join(directory, "duckdb.db"))
        self.connection.execute(f"SET threads TO {os.cpu_count()}")
        start = time.perf_counter()
        self.connection.execute(files["tables.sql"])
        for table in files["tables"]:
            self.connection.execute(f"COPY {table} FROM '{directory}/{table}.csv' (HEADER)")
        self.loaded = time.perf_counter() - start

    def ask(self, query):
        start = time.perf_counter()
        rows = self.connection.execute(query).fetchall()
        return (time.perf_counter() - start) * 1e3, [[str(cell) for cell in row] for row in rows]

    def close(self):
        self.connection.close()


class Sqlite:
    name = "sqlite"

    def __init__(self, directory, files):
        self.connection = sqlite3.connect(os.path.join(directory, "sqlite.db"))
        self.connection.execute("PRAGMA journal_mode = WAL")
        self.connection.execute("PRAGMA synchronous = NORMAL")
        self.connection.execute("PRAGMA cache_size = -4000000")
        start = time.perf_counter()
        create = re.sub(r"DECIMAL\(15,2\)", "REAL", files["tables.sql"]).replace(" DATE", " TEXT")
        self.connection.executescript(create)
        for table in files["tables"]:
            with open(f"{directory}/{table}.csv", newline="") as text:
                rows = csv.reader(text)
                places = ",".join("?" * len(next(rows)))
                self.connection.executemany(f"INSERT INTO {table} VALUES ({places})", rows)
            self.connection.commit()
        self.connection.execute("ANALYZE")
        self.loaded = time.perf_counter() - start

    def ask(self, query):
        for pattern, instead in SQLITE_DATES:
            query = re.sub(pattern, instead, query)
        start = time.perf_counter()
        rows = self.connection.execute(query).fetchall()
        return (time.perf_counter() - start) * 1e3, [[str(cell) for cell in row] for row in rows]

    def close(self):
        self.connection.close()


def differs(found, expected):
    """What differs between two answers, but for the last digits of numbers; None if nothing does."""
    if len(found) != len(expected):
        return f"{len(found)} rows instead of {len(expected)}"
    for row, (one, other) in enumerate(zip(found, expected)):
        for a, b in zip(one, other):
            try:
                same = abs(float(a) - float(b)) <= 0.006 + 1e-9 * abs(float(b))
            except ValueError:
                same = a.strip() == b.strip()
            if not same:
                return f"row {row + 1}: {one} instead of {other}"
    return None


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("terrace", help="the binary, built with --features sql")
    arguments.add_argument("--dir", help="directory of the files [default: a temporary one]")
    arguments.add_argument("--scale", type=float, default=1)
    arguments.add_argument("--queries", default=",".join(map(str, range(1, 23))))
    arguments.add_argument("--runs", type=int, default=5)
    arguments.add_argument("--out", help="a file for the figures as JSON")
    arguments = arguments.parse_args()
    directory = arguments.dir or tempfile.mkdtemp()
    numbers = [int(number) for number in arguments.queries.split(",")]
    bench = [arguments.terrace, "bench", "tpch", "--dir", directory, "--scale", str(arguments.scale)]
    subprocess.run(bench + ["--export"], check=True)
    for old in pathlib.Path(directory).glob("*.db*"):
        old.unlink()
    text = pathlib.Path(directory, "tables.sql").read_text()
    files = {"tables.sql": text, "tables": re.findall(r"CREATE TABLE (\w+)", text)}
    loads = {}
    duck = DuckDb(directory, files)
    lite = Sqlite(directory, files) if SQLITE_QUERIES & set(numbers) else None
    loads.update({peer.name: peer.loaded for peer in (duck, lite) if peer})
    report = subprocess.run(bench + ["--json", "--query", "6", "--runs", "1"], check=True, capture_output=True)
    report = json.loads(report.stdout)
    loads.update({f"terrace {load['layout']}": load["seconds"] for load in report["loads"]})
    ours = [Terrace(arguments.terrace, f"{directory}/terrace-{layout}", layout) for layout in ("rows", "columns")]
    results, wrong = {}, False
    for number in numbers:
        query = pathlib.Path(directory, f"q{number}.sql").read_text()
        engines = [duck, *ours] + ([lite] if number in SQLITE_QUERIES else [])
        times = {engine.name: [] for engine in engines}
        for run in range(arguments.runs + 1):
            answers = {}
            for engine in engines[run % len(engines) :] + engines[: run % len(engines)]:
                took, answers[engine.name] = engine.ask(query)
                # The first run warms.
                if run:
                    times[engine.name].append(took)
            for name, rows in answers.items():
                if why := differs(rows, answers["duckdb"]):
                    wrong = True
                    print(f"query {number}: {name} differs from duckdb: {why}", file=sys.stderr)
        results[number] = times
        medians = {name: statistics.median(took) for name, took in times.items()}
        cells = [f"{name} {medians[name]:.1f} ms ({min(t):.1f} to {max(t):.1f})" for name, t in times.items()]
        ratios = [f"{name} / duckdb {medians[name] / medians['duckdb']:.2f}" for name in medians if name != "duckdb"]
        print(f"query {number}: " + ", ".join(cells) + "; " + ", ".join(ratios), flush=True)
    print("loaded in seconds: " + ", ".join(f"{name} {seconds:.1f}" for name, seconds in loads.items()))
    for engine in [duck, lite, *ours]:
        if engine:
            engine.close()
    if arguments.out:
        figures = {
            "machine": report["machine"],
            "scale": arguments.scale,
            "duckdb": duckdb.__version__,
            "sqlite": sqlite3.sqlite_version,
            "load_seconds": loads,
            "milliseconds": results,
        }
        pathlib.Path(arguments.out).write_text(json.dumps(figures, indent=1) + "\n")
    sys.exit(wrong)


main()
