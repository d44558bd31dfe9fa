"""Random tables, changes and ALTER TABLEs, done by Terrace and by SQLite, which are then asked the same.

    python3 peers/changes.py target/release/terrace --rounds 50 --seed 1

Tables of rows and of columns, with indexes, sealed and opened again in between. A difference is printed with its query, and the end is 1.
"""

import argparse
import csv
import io
import random
import sqlite3
import subprocess
import sys
import tempfile

KEYS = 5000
TYPES = ["INT", "TEXT", "DOUBLE"]
TEXTS = ["", "a", "zebra", "a longer text than twelve"]


class Table:
    """The table `t` of one round, as both databases have it."""

    def __init__(self, draw, terrace, directory):
        self.draw, self.terrace, self.directory = draw, terrace, directory
        self.lite = sqlite3.connect(":memory:")
        self.columns = [("k", "INT")]
        self.not_null = set()
        self.names = 0
        self.pending = []
        self.layout = draw.choice(["rows", "columns"])
        create = "CREATE TABLE t (k INT PRIMARY KEY"
        for _ in range(draw.randrange(1, 4)):
            name, kind = self.name(), draw.choice(TYPES)
            self.columns.append((name, kind))
            create += f", {name} {kind}"
        self.lite.execute(create + ")")
        self.pending.append(f"{create}) WITH (layout = {self.layout})")

    def name(self):
        self.names += 1
        return f"c{self.names}"

    def literal(self, kind, may_be_null=True):
        if may_be_null and self.draw.random() < 0.15:
            return "NULL"
        match kind:
            case "INT":
                return str(self.draw.randrange(-5, 60))
            case "TEXT":
                return f"'{self.draw.choice(TEXTS)}{self.draw.randrange(5)}'"
            case _:
                return str(self.draw.randrange(-40, 40) / 8)

    def condition(self):
        if self.draw.random() < 0.4:
            first = self.draw.randrange(KEYS)
            return f"k BETWEEN {first} AND {first + self.draw.choice([0, 200])}"
        name, kind = self.draw.choice(self.columns)
        value = self.literal(kind)
        if value == "NULL":
            return f"{name} IS NULL"
        return f"{name} {self.draw.choice(['=', '<', '>'])} {value}"

    def both(self, statement):
        self.lite.execute(statement)
        self.pending.append(statement)

    def insert(self):
        there = {key for (key,) in self.lite.execute("SELECT k FROM t")}
        first, count = self.draw.randrange(KEYS), self.draw.choice([5, 40, 800])
        keys = [key for key in range(first, first + count) if key not in there]
        if not keys:
            return
        # Of long ones most columns have their default.
        named = [column for column in self.columns[1:] if count < 800 and self.draw.random() < 0.7]

        def row(key):
            values = [self.literal(kind, name not in self.not_null) for name, kind in named]
            return f"({', '.join([str(key)] + values)})"

        names = ", ".join(["k"] + [name for name, _ in named])
        self.both(f"INSERT INTO t ({names}) VALUES {', '.join(map(row, keys))}")

    def add_column(self):
        name, kind = self.name(), self.draw.choice(TYPES)
        default, is_not_null = self.literal(kind), self.draw.random() < 0.3
        if default == "NULL":
            is_not_null = False
        if is_not_null:
            self.not_null.add(name)
        self.both(f"ALTER TABLE t ADD COLUMN {name} {kind}{' NOT NULL' if is_not_null else ''} DEFAULT {default}")
        self.columns.append((name, kind))

    def rename_column(self):
        at, new = self.draw.randrange(1, len(self.columns)), self.name()
        old, kind = self.columns[at]
        self.both(f"ALTER TABLE t RENAME COLUMN {old} TO {new}")
        self.columns[at] = (new, kind)
        if old in self.not_null:
            self.not_null.add(new)

    def update(self):
        name, kind = self.draw.choice(self.columns[1:])
        value = self.literal(kind, name not in self.not_null)
        self.both(f"UPDATE t SET {name} = {value} WHERE {self.condition()}")

    def change(self):
        kind = self.draw.random()
        if kind < 0.3:
            self.insert()
        elif kind < 0.45:
            self.add_column()
        elif kind < 0.5:
            self.rename_column()
        elif kind < 0.7:
            self.update()
        elif kind < 0.8:
            self.both(f"DELETE FROM t WHERE {self.condition()}")
        elif kind < 0.87:
            self.pending.append("OPTIMIZE TABLE t")
        elif kind < 0.92 and self.layout == "rows":
            name = self.draw.choice(self.columns[1:])[0]
            self.pending.append(f"CREATE INDEX {self.name()} ON t ({name})")
        else:
            self.done()

    def run(self, text):
        command = [self.terrace, "sql", self.directory, "--format", "csv"]
        ran = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
        if ran.returncode:
            sys.exit(f"{self.layout}: {ran.stderr.strip()}\n{text[-2000:]}")
        return ran.stdout

    def done(self):
        """Terrace does what is pending, and is closed."""
        if self.pending:
            self.run(";\n".join(self.pending) + ";\n")
            self.pending = []

    def compare(self, query):
        found = [list(map(normal, row)) for row in csv.reader(io.StringIO(self.run(query + ";")))][1:]
        wanted = [list(map(normal, row)) for row in self.lite.execute(query)]
        if found != wanted:
            differing = [pair for pair in zip(found, wanted) if pair[0] != pair[1]][:3]
            sys.exit(f"{self.layout}: {query}\n{len(found)} rows, {len(wanted)} wanted: {differing}")


def normal(value):
    """A value as a text: both print numbers in ways of their own, and a file has no NULL."""
    if value is None or value == "":
        return ""
    try:
        return f"{float(value):g}"
    except ValueError:
        return str(value)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("terrace", help="the binary, built with --features sql")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    for number in range(arguments.rounds):
        seed = arguments.seed + number
        with tempfile.TemporaryDirectory() as directory:
            table = Table(random.Random(seed), arguments.terrace, directory)
            for _ in range(table.draw.randrange(10, 40)):
                table.change()
            table.done()
            table.compare("SELECT * FROM t ORDER BY k")
            for name, _ in table.columns[1:]:
                table.compare(f"SELECT count({name}), min({name}), max({name}) FROM t")
            for _ in range(6):
                table.compare(f"SELECT * FROM t WHERE {table.condition()} ORDER BY k")
        print(f"seed {seed}: {table.layout}, {len(table.columns)} columns: the same", flush=True)


if __name__ == "__main__":
    main()
