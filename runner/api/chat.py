"""What the chat face uses besides the queue itself."""

from runner import clock
from runner.api.outlook import Outlook
from runner.api.view import STARTS_NEXT
from runner.doorbell import Doorbell, ring
from runner.home import BOT_BELL, BOT_LOCK, PAGE_LINK, env_file, state_folder
from runner.home import values as setting_texts
from runner.interpreter import python_command
from runner.logs import Log
from runner.options import help_rows, read_text
from runner.presence import KEEPER_LOCK, held, holder
from runner.quantities import format_duration, format_mib, parse_duration
from runner.settings import FromEnvironment, Seconds, load_as, refusing
from runner.snapshot.frozen import words as snapshot_words
from runner.store.buttons import Button, Buttons
from runner.store.connection import QueueLostError, StoreError
from runner.store.inbox import Inbox
from runner.store.listing import Listing, Overview
from runner.store.messages import LONGEST_WAIT_S, Message, Messages, Shown
from runner.store.people import PAIRING_S, People, Person
from runner.store.threads import Thread, Threads
from runner.supervisor.kernel import descendants
from runner.sweep import options as sweep_options
from runner.sweep import sweeps
from runner.terminal.checks.finding import FAIL, INFO, OK, WARN, Finding
from runner.terminal.session import counted, open_queue, print_json, say, warn_without_runner
from runner.terminal.table import Row, print_table
from runner.terminal.words import printable, short_time, signal_name, state_words, title
from runner.workspace import Workspace, environment_of, stamp, validate

__all__ = [
    "BOT_BELL",
    "BOT_LOCK",
    "FAIL",
    "INFO",
    "KEEPER_LOCK",
    "LONGEST_WAIT_S",
    "OK",
    "PAGE_LINK",
    "PAIRING_S",
    "STARTS_NEXT",
    "WARN",
    "Button",
    "Buttons",
    "Doorbell",
    "Finding",
    "FromEnvironment",
    "Inbox",
    "Listing",
    "Log",
    "Message",
    "Messages",
    "Outlook",
    "Overview",
    "People",
    "Person",
    "QueueLostError",
    "Row",
    "Seconds",
    "Shown",
    "StoreError",
    "Thread",
    "Threads",
    "Workspace",
    "clock",
    "counted",
    "descendants",
    "env_file",
    "environment_of",
    "format_duration",
    "format_mib",
    "held",
    "help_rows",
    "holder",
    "load_as",
    "open_queue",
    "parse_duration",
    "print_json",
    "print_table",
    "printable",
    "python_command",
    "read_text",
    "refusing",
    "ring",
    "say",
    "setting_texts",
    "short_time",
    "signal_name",
    "snapshot_words",
    "stamp",
    "state_folder",
    "state_words",
    "sweep_options",
    "sweeps",
    "title",
    "validate",
    "warn_without_runner",
]
