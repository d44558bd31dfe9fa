"""Generated queries, answered by Terrace and DuckDB: tables of rows, tables of columns, and tables of columns that were changed.

    pip install duckdb
    python3 peers/corpus.py target/release/terrace --queries 2000 --seed 1

Types, NULLs, filters, joins, groups, windows, orders and limits. Each query is asked of all; an answer that differs is printed with
its query, and the end is 1. Where SQL leaves it open, queries say what they mean: every order is total.
"""

import argparse
import csv
import io
import pathlib
import random
import re
import subprocess
import sys
import tempfile
import threading
import time

import duckdb

COLUMNS = {
    "k": "BIGINT",
    "g": "INTEGER",
    "s": "SMALLINT",
    "b": "BOOLEAN",
    "d": "DECIMAL(12,2)",
    "f": "DOUBLE",
    "t": "TEXT",
    "y": "DATE",
    "z": "TIMESTAMP",
}
ROWS = 20_000


class Draw(random.Random):
    """Values, conditions and queries."""

    def value(self, column):
        match COLUMNS[column]:
            case "BIGINT":
                return str(self.randrange(3 * ROWS))
            case "INTEGER":
                return str(self.choice([self.randrange(-40, 40), self.randrange(-2**31, 2**31)]) if self.random() < 0.1 else self.randrange(-40, 40))
            case "SMALLINT":
                return str(self.randrange(-5, 5))
            case "BOOLEAN":
                return self.choice(["true", "false"])
            case "DECIMAL(12,2)":
                return f"{self.randrange(-500000, 500000) / 100:.2f}"
            case "DOUBLE":
                return f"{self.randrange(-4000, 4000) / 8}"
            case "TEXT":
                return self.choice(["", "a", "B", "ab", "zebra", "a longer text than twelve", "it''s", "%", "\u00e9"]) + self.choice(["", "", str(self.randrange(30))])
            case "DATE":
                return f"{self.randrange(1960, 2030)}-{self.randrange(1, 13):02}-{self.randrange(1, 29):02}"
            case "TIMESTAMP":
                return f"{self.randrange(1960, 2030)}-{self.randrange(1, 13):02}-{self.randrange(1, 29):02} {self.randrange(24):02}:{self.randrange(60):02}:{self.randrange(60):02}"

    def literal(self, column):
        value = self.value(column)
        match COLUMNS[column]:
            case "TEXT":
                return f"'{value}'"
            case "DATE":
                return f"DATE '{value}'"
            case "TIMESTAMP":
                return f"TIMESTAMP '{value}'"
            case _:
                return value

    def condition(self, of="", depth=0):
        column = self.choice(list(COLUMNS))
        name = of + column
        kind = self.randrange(12 if depth < 2 else 8)
        match kind:
            case 0 | 1 | 2:
                return f"{name} {self.choice(['=', '<', '<=', '>', '>=', '<>'])} {self.literal(column)}"
            case 3:
                return f"{name} BETWEEN {self.literal(column)} AND {self.literal(column)}"
            case 4:
                return f"{name} {self.choice(['', 'NOT '])}IN ({', '.join(self.literal(column) for _ in range(self.randrange(1, 6)))})"
            case 5:
                return f"{name} IS {self.choice(['', 'NOT '])}NULL"
            case 6:
                return f"{of}t {self.choice(['', 'NOT '])}LIKE '{self.choice(['a%', '%1', '%e%', '_', ''])}'"
            case 7:
                return self.choice([f"{of}g + {of}s > {self.randrange(-40, 40)}", f"{of}k % 7 = {self.randrange(7)}", f"abs({of}g) < 9", f"{of}f * 2 < {of}g", f"coalesce({of}s, 0) = 0"])
            case 8:
                return f"NOT ({self.condition(of, depth + 1)})"
            case 9 | 10:
                return f"({self.condition(of, depth + 1)} AND {self.condition(of, depth + 1)})"
            case _:
                return f"({self.condition(of, depth + 1)} OR {self.condition(of, depth + 1)})"

    def key_range(self, of=""):
        first = self.randrange(3 * ROWS)
        return f"{of}k BETWEEN {first} AND {first + self.choice([0, 10, 300, 30_000])}"

    def where(self, of=""):
        parts = [self.condition(of) for _ in range(self.randrange(3))]
        if self.random() < 0.4:
            parts.append(self.key_range(of))
        return " WHERE " + " AND ".join(parts) if parts else ""

    def aggregates(self, of=""):
        each = ["count(*)"]
        for _ in range(self.randrange(1, 4)):
            column = self.choice(list(COLUMNS))
            options = [f"count({of}{column})", f"count(DISTINCT {of}{column})", f"min({of}{column})", f"max({of}{column})"]
            if column in "gskdf":
                options += [f"sum({of}{column})"] * 2
            if column == "b":
                options = options[:2]
            each.append(self.choice(options))
        # The engine wants every column to have its own name.
        return ", ".join(dict.fromkeys(each))

    def query(self):
        where = self.where()
        match self.randrange(8):
            case 0:
                columns = ", ".join(self.sample(list(COLUMNS)[1:], self.randrange(1, 6)))
                return f"SELECT k, {columns} FROM T{where} ORDER BY k {self.choice(['', 'DESC'])} LIMIT {self.choice([1, 10, 500])}"
            case 1:
                column = self.choice(["g", "d", "t", "y", "z", "s"])
                nulls = self.choice(["NULLS FIRST", "NULLS LAST"])
                return f"SELECT {column}, k FROM T{where} ORDER BY {column} {self.choice(['ASC', 'DESC'])} {nulls}, k LIMIT 200 OFFSET {self.choice([0, 3, 1000])}"
            case 2:
                return f"SELECT {self.aggregates()} FROM T{where}"
            case 3:
                group = self.choice(["g", "s", "b", "t", "y", "g % 5", "t, s", "extract(year FROM y)"])
                having = self.choice(["", "", " HAVING count(*) > 3"])
                return f"SELECT {group}, {self.aggregates()} FROM T{where} GROUP BY {group}{having}"
            case 4:
                join = self.choice(["JOIN", "LEFT JOIN"])
                on = self.choice(["u.k = v.g", "u.k = v.k", "u.s = v.s AND u.g = v.g", "u.y = v.y"])
                return f"SELECT {self.aggregates('u.')}, count(v.k) FROM T u {join} (SELECT * FROM T{self.where() or ' WHERE k < 900'}) v ON {on}{self.where('u.')}"
            case 5:
                window = self.choice(["row_number() OVER (PARTITION BY s ORDER BY k)", "sum(g) OVER (ORDER BY k ROWS BETWEEN 3 PRECEDING AND CURRENT ROW)", "lag(t) OVER (ORDER BY k)", "rank() OVER (PARTITION BY b ORDER BY g, k)"])
                return f"SELECT k, {window} AS w FROM T{where} ORDER BY k LIMIT 300"
            case 6:
                return f"SELECT count(*) FROM T WHERE {self.choice(['k', 'g'])} {self.choice(['', 'NOT '])}IN (SELECT g FROM T WHERE g IS NOT NULL AND {self.condition()}) AND {self.condition()}"
            case _:
                return f"SELECT s, count(*) FROM (SELECT DISTINCT s, b, g FROM T{where}) AS of GROUP BY s"


class Terrace:
    """A `terrace sql` that is asked over its standard input."""

    def __init__(self, binary, directory):
        command = [binary, "sql", directory, "--format", "csv", "--timing"]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True)
        self.out = []
        threading.Thread(target=self.listen, daemon=True).start()

    def listen(self):
        for line in self.process.stdout:
            self.out.append(line)

    def ask(self, statement, end="SELECT 'the end' AS e"):
        """Its rows, or what it says; the second statement marks the end of the first one's."""
        self.out.clear()
        self.process.stdin.write(f"{statement};\n{end};\n")
        self.process.stdin.flush()
        times = 0
        for line in self.process.stderr:
            times += bool(re.fullmatch(r"[0-9.]+ ms\n", line))
            if times == 2:
                break
            if line.startswith("terrace: ") and "made a new database" not in line:
                return line
        while not self.out or not self.out[-1].startswith("the end"):
            time.sleep(0.0002)
        return list(csv.reader(io.StringIO("".join(self.out[:-2]))))[1:]


def canonical(cell):
    if cell is None or cell == "":
        return ""
    text = str(cell)
    if text in ("True", "False"):
        return text.lower()
    text = text.replace("T", " ") if re.match(r"\d{4}-\d\d-\d\dT", text) else text
    text = text[:-9] if text.endswith(" 00:00:00") else text
    try:
        return f"{float(text):.6g}" if "." in text or "e" in text.lower() else str(int(text))
    except ValueError:
        return text


def rows_of(rows, ordered):
    found = [tuple(canonical(cell) for cell in row) for row in rows]
    return found if ordered else sorted(found)


def fill(draw, directory, duck, terrace):
    table = ", ".join(f"{name} {kind}" + (" PRIMARY KEY" if name == "k" else "") for name, kind in COLUMNS.items())
    path = pathlib.Path(directory, "rows.csv")
    with open(path, "w", newline="") as file:
        file.write(",".join(COLUMNS) + "\n")
        for key in sorted(draw.sample(range(3 * ROWS), ROWS)):
            # A text that is empty is NULL in a file.
            cells = ["" if draw.random() < 0.08 else draw.value(name).replace("''", "'") for name in list(COLUMNS)[1:]]
            file.write(",".join([str(key), *cells]) + "\n")
    duck.execute(f"CREATE TABLE r ({table})")
    duck.execute(f"COPY r FROM '{path}' (HEADER, NULLSTR '')")
    statements = [f"CREATE TABLE r ({table}) WITH (layout = rows)"]
    statements += [f"CREATE TABLE {name} ({table}) WITH (layout = columns)" for name in ("c", "m")]
    statements += [f"COPY {name} FROM '{path}'" for name in ("r", "c")]
    # The same rows in other ways: half of them as wrong ones, sealed, and then put right.
    statements += ["COPY m FROM '" + str(path) + "'"]
    statements += [f"UPDATE m SET g = 1, t = 'x', d = NULL WHERE k % 3 = {rest} AND k < 20000" for rest in (0, 1)]
    statements += ["OPTIMIZE TABLE m", "DELETE FROM m WHERE k BETWEEN 9000 AND 15000 OR k % 11 = 0"]
    statements += [f"INSERT INTO m SELECT * FROM r WHERE (k BETWEEN 9000 AND 15000 OR k % 11 = 0) AND k % 2 = {rest}" for rest in (0, 1)]
    statements += [f"REPLACE INTO m SELECT * FROM r WHERE k % 3 = {rest} AND k < 20000 AND NOT (k BETWEEN 9000 AND 15000 OR k % 11 = 0)" for rest in (0, 1)]
    for statement in statements:
        said = terrace.ask(statement)
        if isinstance(said, str):
            sys.exit(f"{statement}: {said}")


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("terrace", help="the binary, built with --features sql")
    arguments.add_argument("--queries", type=int, default=1000)
    arguments.add_argument("--seed", type=int, default=1)
    arguments = arguments.parse_args()
    draw, duck = Draw(arguments.seed), duckdb.connect()
    directory = tempfile.mkdtemp()
    terrace = Terrace(arguments.terrace, directory + "/db")
    fill(draw, directory, duck, terrace)
    wrong = refused = 0
    for number in range(arguments.queries):
        query = draw.query()
        ordered = " ORDER BY k" in query or "NULLS" in query
        try:
            expected = rows_of(duck.execute(re.sub(r" T\b", " r", query)).fetchall(), ordered)
        except duckdb.Error as error:
            expected, refused = None, refused + 1
            if refused <= 3:
                print(f"refused by DuckDB: {query}: {error}")
        for table in "rcm":
            found = terrace.ask(re.sub(r" T\b", f" {table}", query))
            if isinstance(found, str):
                if expected is not None:
                    wrong += 1
                    print(f"{query}\n  of {table}: {found}")
                # It ends where its input has an error.
                terrace.process.wait()
                terrace = Terrace(arguments.terrace, directory + "/db")
            elif expected is not None and rows_of(found, ordered) != expected:
                wrong += 1
                found = rows_of(found, ordered)
                at = next((at for at, (a, b) in enumerate(zip(found, expected)) if a != b), min(len(found), len(expected)))
                print(f"{query}\n  of {table}: {len(found)} rows, at {at} {found[at:at + 1]} instead of {expected[at:at + 1]} of {len(expected)}")
    print(f"{arguments.queries} queries, seed {arguments.seed}: {wrong} answers differ, {refused} refused by DuckDB")
    sys.exit(wrong > 0)


main()
