"""Keeps users, and an index that finds them by their city.

Shows that a pair and the entries of an index about it change together, so that no reader finds one without the other.

Keys:
  user/ID          has "CITY NAME"
  by-city/CITY/ID  has nothing; it says that the user ID lives in CITY

Why transactions: a user who moves changes three keys, of which the two of the index are usually in other regions than the
user. With single puts, a reader could find the user in two cities or in none, a program that ends in between would leave
the index wrong for ever, and of two programs that move the same user, each could remove what the other has put.

`put` and `delete` do the same when they are done twice. So Client.run is enough for them: after a MaybeApplied, give the
same command again.
"""

import sys

from cell.examples import example
from cell.examples.example import DONE, WRONG, quoted, show

USERS = b"user/"
INDEX = b"by-city/"


def index_key(city, user):
    return INDEX + city + b"/" + user


def split(value):
    """Returns the city and the name in a user's value."""
    city, _, name = value.partition(b" ")
    return city, name


def put(client, flags):
    def body(transaction):
        before = transaction.get(USERS + flags.id)
        if before is not None:
            transaction.delete(index_key(split(before)[0], flags.id))
        transaction.put(USERS + flags.id, flags.city + b" " + flags.name)
        transaction.put(index_key(flags.city, flags.id), b"")  # If the city is the same, this takes the delete back.

    client.run(body)
    return DONE


def delete(client, flags):
    def body(transaction):
        before = transaction.get(USERS + flags.id)
        if before is None:
            return False
        transaction.delete(index_key(split(before)[0], flags.id))
        transaction.delete(USERS + flags.id)
        return True

    if client.run(body):
        return DONE
    show(b"there is no user " + flags.id)
    return WRONG


def list_city(client, flags):
    """Lists the users of a city. Before the commit, the index and the users may be of different moments. So the body
    only collects what it reads, and what that means is decided afterwards."""

    def body(transaction):
        ids = [key[len(index_key(flags.city, b"")):] for key, _ in transaction.scan(prefix=index_key(flags.city, b""))]
        return [(user, transaction.get(USERS + user)) for user in ids]

    status = DONE
    for user, value in client.run(body):
        if value is not None and split(value)[0] == flags.city:
            show(user, split(value)[1])
        else:
            show(f"the index is wrong: user {quoted(user)} does not live in ".encode() + flags.city)
            status = WRONG
    return status


def check(client, _):
    """Compares all users with the whole index, at one moment. For more than 16,384 pairs in a region, this would have to
    go city by city, or read a snapshot."""
    users, entries = client.run(lambda transaction: (transaction.scan(prefix=USERS), transaction.scan(prefix=INDEX)))
    wanted = {index_key(split(value)[0], key[len(USERS):]) for key, value in users}
    found = {key for key, _ in entries}
    for key in sorted(wanted - found):
        show(f"{quoted(key)} is missing from the index")
    for key in sorted(found - wanted):
        show(f"{quoted(key)} is in the index, and there is no such user")
    if wanted != found:
        return WRONG
    show(f"{len(users)} users, and the index is right")
    return DONE


def main():
    parser = example.parser("secondary_index", "Keep users, and an index of them by city.", __doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def add(name, command, text, *arguments):
        made = commands.add_parser(name, help=text, description=text)
        made.set_defaults(command=command)
        for argument in arguments:
            made.add_argument(argument, type=example.argument_bytes if argument == "name" else example.part_of_key)

    add("put", put, "store the user ID with CITY and NAME, in the place of an earlier one", "id", "city", "name")
    add("delete", delete, "delete the user ID: exit status 1 if it does not exist", "id")
    add("city", list_city, "list the users in CITY as ID TAB NAME", "city")
    add("check", check, "compare all users with the index: exit status 1 if they differ")
    return example.run("secondary_index", parser.parse_args())


if __name__ == "__main__":
    sys.exit(main())
