"""The commands for `inv`. `sifmark COMMAND` is the same, also without a clone."""

import sys

# invoke turns bytecode off, lest it lie beside this file: each command would compile again all that it imports.
sys.dont_write_bytecode = bool(sys.flags.dont_write_bytecode)

from sifmark.commands.invoke_tasks import namespace as make_namespace

namespace = make_namespace()
