"""Keeps documents, and an inverted file that finds them by the words in them. The documents may be the packages of a Debian
system:

  dpkg-query -W -f '${Package}\\t${binary:Summary}\\n' | python -m cell.examples.inverted_file load
  python -m cell.examples.inverted_file search python library

Shows how a sorted store answers a search for several words: it merges the sorted lists of the documents that have each word,
and skips what cannot match.

Keys:
  inverted/doc/NAME        has the text of the document NAME
  inverted/word/WORD/NAME  has nothing; it says that the word is in the name or the text of the document

A word is a run of letters and digits, in lower case, of which the first 64 bytes count. Bytes outside of ASCII are letters.
The documents of a word are neighbours in the order of their names, so a scan lists them, and a scan that begins in their
middle skips what comes before. The words that begin with a prefix are neighbours as well.

Why transactions: a document has an entry for each of its words, in many regions. With single puts a program that ends in
between would leave a document that some words find and others do not, and of two programs that update the same document at
the same time, each could leave entries that the other's text does not have.

What to look at:
- `replace` writes the entries that the new text has and the old one had not, and deletes the others. An entry of a word that
  stays is never gone, not even for a moment.
- `search` needs no transaction for that reason. A document that has all of the words throughout is found, and each document
  that was found is read, and left out if it has not all of them any more. A transaction that had scanned all these entries
  would be aborted by each document that is added.
- `WordEntries.seek` reads a batch of entries, and begins a new scan at the document that another word has reached if that is
  not in the batch. `search --stats` shows how few entries are read for a rare and a frequent word.

A transaction writes to up to 17 regions, so this layout suits some millions of entries: a document whose words are in more
regions is refused. A larger collection would be divided by document, as inverted/PART/..., and a search would ask each part.
"""

import bisect
import re
import sys
import threading

import cell
from cell.examples import example
from cell.examples.example import DONE, WRONG, ExampleError, quoted, show

DOCUMENTS = b"inverted/doc/"
WORDS = b"inverted/word/"
WORDS_END = b"inverted/word0"
WORD_BYTES_MAX = 64
BATCH = 64


def entry_key(word, name):
    return WORDS + word + b"/" + name


def words_in(text):
    """Returns the set of the words in a text."""
    return {word[:WORD_BYTES_MAX] for word in re.findall(rb"[a-z0-9\x80-\xff]+", text.lower())}


def words_of(name, text):
    """Returns the set of the words that find a document."""
    return words_in(name + b" " + text)


def replace(client, name, text):
    """Replaces the text of a document, or removes the document if the text is None. Returns whether it was there
    before."""
    after = set() if text is None else words_of(name, text)

    def body(transaction):
        old = transaction.get(DOCUMENTS + name)
        before = set() if old is None else words_of(name, old)
        for word in before - after:
            transaction.delete(entry_key(word, name))
        for word in after - before:
            transaction.put(entry_key(word, name), b"")
        if text is not None:
            transaction.put(DOCUMENTS + name, text)
        elif old is not None:
            transaction.delete(DOCUMENTS + name)
        return old is not None

    try:
        return client.run(body)
    except cell.Error as error:
        raise ExampleError(f"document {quoted(name)}: {error}") from error


def add(client, flags):
    replace(client, flags.name, flags.text)
    return DONE


def remove(client, flags):
    if replace(client, flags.name, None):
        return DONE
    show(f"there is no document {quoted(flags.name)}")
    return WRONG


def read_documents(lines):
    documents = []
    for line in lines:
        name, tab, text = line.removesuffix(b"\n").partition(b"\t")
        if not tab or not name or b"/" in name or b" " in name:
            raise ExampleError(f"line {len(documents) + 1}: {quoted(line.rstrip())} is not NAME TAB TEXT")
        if len(name) > example.PART_BYTES_MAX:
            raise ExampleError(f"line {len(documents) + 1}: the name {quoted(name)} has more than {example.PART_BYTES_MAX} bytes")
        documents.append((name, text))
    return documents


def load(_, flags):
    """Adds documents from several threads, each with a client of its own and one transaction for each document."""
    try:
        with open(sys.stdin.fileno() if flags.file == "-" else flags.file, "rb") as file:
            documents = read_documents(file)
    except OSError as error:
        raise ExampleError(f"cannot read {flags.file}: {error.strerror}") from error
    rest, lock, errors = iter(documents), threading.Lock(), []

    def add_some():
        try:
            with example.connect(flags) as client:
                while not errors:
                    with lock:
                        document = next(rest, None)
                    if document is None:
                        break
                    replace(client, *document)
                client.finish_transactions()
        except Exception as error:  # Raised again by the main thread.
            errors.append(error)

    threads = [threading.Thread(target=add_some) for _ in range(flags.clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    show(f"{len(documents)} documents were loaded")
    return DONE


class Stats:
    """Counts the reads of searches."""

    def __init__(self):
        self.entries = self.scans = 0

    def show(self, flags):
        if flags.stats:
            print(f"{self.entries} entries in {self.scans} scans", file=sys.stderr)


class WordEntries:
    """The documents that have a word, in the order of their names. They are read in batches."""

    def __init__(self, client, word, stats):
        self.client, self.prefix, self.stats = client, entry_key(word, b""), stats
        self.names, self.complete = [], False  # Complete: no document comes after those in names.

    def seek(self, name):
        """Returns the first document whose name is not below `name`, or None if all are below it. `name` must not be below
        that of an earlier call."""
        at = bisect.bisect_left(self.names, name)
        if at == len(self.names) and not self.complete:
            self.fetch(name)
            at = 0
        return self.names[at] if at < len(self.names) else None

    def fetch(self, name):
        """Reads the batch that begins at `name`."""
        keys = self.client.scan(self.prefix + name, self.prefix[:-1] + b"0", limit=BATCH, keys_only=True)
        self.names = [key[len(self.prefix):] for key in keys]
        self.complete = len(self.names) < BATCH
        self.stats.entries += len(self.names)
        self.stats.scans += 1


def show_matches(client, names, matches):
    """Reads the documents, and writes those of whose words `matches` accepts the set."""
    for first in range(0, len(names), BATCH):
        some = names[first:first + BATCH]
        for name, text in zip(some, client.multi_get([DOCUMENTS + name for name in some])):
            if text is not None and matches(words_of(name, text)):  # None: it was removed after its entries were read.
                show(name, text)


def search(client, flags):
    """Lists the documents that have all words. Each list is asked in turn for the first document from `name` on. If it
    returns a later one, that is the next to ask for. If all return `name`, it is a match."""
    words = words_in(b" ".join(flags.word))
    if not words:
        raise ExampleError("there is no letter and no digit in what is searched for")
    stats = Stats()
    lists = [WordEntries(client, word, stats) for word in sorted(words)]
    found, name, agreed, at = [], b"", 0, 0
    while flags.limit is None or len(found) < flags.limit:
        first = lists[at % len(lists)].seek(name)
        at += 1
        if first is None:
            break
        agreed = agreed + 1 if first == name else 1
        name = first
        if agreed == len(lists):
            found.append(name)
            name += b"\0"  # The lowest name above it.
            agreed = 0
    show_matches(client, found, lambda has: words <= has)
    stats.show(flags)
    return DONE


def search_prefix(client, flags):
    """Lists the documents that have a word that begins with a prefix. Entries come in the order of the words, so the
    names are sorted first."""
    words = words_in(flags.prefix)
    if len(words) != 1:
        raise ExampleError(f"{quoted(flags.prefix)} is not the beginning of one word")
    (prefix,) = words
    stats = Stats()
    stats.scans = 1
    names = set()
    for key in client.scan(prefix=WORDS + prefix, keys_only=True):
        stats.entries += 1
        names.add(key.rpartition(b"/")[2])
    show_matches(client, sorted(names), lambda has: any(word.startswith(prefix) for word in has))
    stats.show(flags)
    return DONE


def check(client, _):
    """Compares the entries with all documents, as of one moment: in a snapshot, which may be as large as the cluster."""
    with client.snapshot(DOCUMENTS, WORDS_END) as snapshot:
        documents, wanted = 0, set()
        for key, text in snapshot.scan(prefix=DOCUMENTS):
            name = key[len(DOCUMENTS):]
            wanted |= {entry_key(word, name) for word in words_of(name, text)}
            documents += 1
        found = set(snapshot.scan(prefix=WORDS, keys_only=True))
    for key in sorted(wanted - found):
        show(f"{quoted(key)} is missing")
    for key in sorted(found - wanted):
        show(f"{quoted(key)} is there, and no document has this word")
    if wanted != found:
        return WRONG
    show(f"{documents} documents with {len(found)} entries, and all are right")
    return DONE


def main():
    parser = example.parser("inverted_file", "Keep documents, and find them by the words in them.", __doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def command(name, function, text):
        made = commands.add_parser(name, help=text, description=text)
        made.set_defaults(command=function)
        return made

    adding = command("add", add, "store the document NAME with TEXT, in the place of an earlier one")
    removing = command("remove", remove, "remove the document NAME: exit status 1 if it does not exist")
    loading = command("load", load, "store many documents, each a line NAME TAB TEXT")
    searching = command("search", search, "list the documents that have all words, as NAME TAB TEXT")
    prefix = command("prefix", search_prefix, "list the documents that have a word that begins with PREFIX")
    command("check", check, "compare the entries with the texts of all documents: exit status 1 if they differ")
    for made in (adding, removing):
        made.add_argument("name", type=example.part_of_key)
    adding.add_argument("text", type=example.argument_bytes)
    loading.add_argument("file", nargs="?", default="-", help="a file; -: standard input (default: %(default)s)")
    loading.add_argument("--clients", type=example.whole_number(1, 64), default=4, help="number of threads (default: %(default)s)")
    searching.add_argument("word", nargs="+", type=example.argument_bytes)
    searching.add_argument("--limit", type=example.whole_number(1, 2**64 - 1), help="how many documents at most (default: all)")
    prefix.add_argument("prefix", type=example.argument_bytes)
    for made in (searching, prefix):
        made.add_argument("--stats", action="store_true", help="write to standard error how many entries were read")
    return example.run("inverted_file", parser.parse_args())


if __name__ == "__main__":
    sys.exit(main())
