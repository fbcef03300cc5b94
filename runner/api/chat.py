"""What the bot may import besides the queue itself."""

from runner import clock
from runner.api.outlook import Outlook
from runner.api.waiting_reasons import STARTS_NEXT
from runner.config.home import BOT_BELL, BOT_LOCK, PAGE_LINK, env_file, state_folder
from runner.config.home import values as setting_texts
from runner.config.option_reader import read_text
from runner.config.options import SECTIONS as OPTION_SECTIONS
from runner.config.options import help_rows
from runner.config.settings import FromEnvironment, Seconds, load_as, refusing
from runner.config.workspace import Workspace, environment_of, stamp, validate
from runner.processes.doorbell import Doorbell, ring
from runner.processes.interpreter import python_command
from runner.processes.linux import descendants
from runner.processes.process_lock import KEEPER_LOCK, held, holder
from runner.snapshot.code_copy import words as snapshot_words
from runner.store.box import Box, BoxKey
from runner.store.connection import QueueLostError, Store, StoreError
from runner.store.listing import Listing, Overview
from runner.supervisor.log_reader import Log
from runner.sweep import sweep_options, sweeps
from runner.text.words import END_WORDS, duration_words, printable, short_time, signal_name, state_words, title
from runner.units import format_duration, format_mib, parse_duration, parse_job_range

__all__ = [
    "BOT_BELL",
    "BOT_LOCK",
    "END_WORDS",
    "KEEPER_LOCK",
    "OPTION_SECTIONS",
    "PAGE_LINK",
    "STARTS_NEXT",
    "Box",
    "BoxKey",
    "Doorbell",
    "FromEnvironment",
    "Listing",
    "Log",
    "Outlook",
    "Overview",
    "QueueLostError",
    "Seconds",
    "Store",
    "StoreError",
    "Workspace",
    "clock",
    "descendants",
    "duration_words",
    "env_file",
    "environment_of",
    "format_duration",
    "format_mib",
    "held",
    "help_rows",
    "holder",
    "load_as",
    "parse_duration",
    "parse_job_range",
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
