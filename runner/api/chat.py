"""What the bot may import besides the queue itself."""

from runner import clock
from runner.api.outlook import Outlook
from runner.api.view import STARTS_NEXT
from runner.config.home import BOT_BELL, BOT_LOCK, PAGE_LINK, env_file, state_folder
from runner.config.home import values as setting_texts
from runner.config.options import help_rows, read_text
from runner.config.settings import FromEnvironment, Seconds, load_as, refusing
from runner.config.workspace import Workspace, environment_of, stamp, validate
from runner.processes.doorbell import Doorbell, ring
from runner.processes.interpreter import python_command
from runner.processes.linux import descendants
from runner.processes.process_lock import KEEPER_LOCK, held, holder
from runner.snapshot.code_copy import words as snapshot_words
from runner.store.buttons import Button, Buttons
from runner.store.connection import QueueLostError, StoreError
from runner.store.inbox import Inbox
from runner.store.listing import Listing, Overview
from runner.store.messages import LONGEST_WAIT_S, Message, Messages, Shown
from runner.store.people import PAIRING_S, People, Person
from runner.store.threads import Thread, Threads
from runner.supervisor.log_reader import Log
from runner.sweep import sweep_options, sweeps
from runner.text.words import printable, short_time, signal_name, state_words, title
from runner.units import format_duration, format_mib, parse_duration

__all__ = [
    "BOT_BELL",
    "BOT_LOCK",
    "KEEPER_LOCK",
    "LONGEST_WAIT_S",
    "PAGE_LINK",
    "PAIRING_S",
    "STARTS_NEXT",
    "Button",
    "Buttons",
    "Doorbell",
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
    "Seconds",
    "Shown",
    "StoreError",
    "Thread",
    "Threads",
    "Workspace",
    "clock",
    "descendants",
    "env_file",
    "environment_of",
    "format_duration",
    "format_mib",
    "held",
    "help_rows",
    "holder",
    "load_as",
    "parse_duration",
    "printable",
    "python_command",
    "read_text",
    "refusing",
    "ring",
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
]
