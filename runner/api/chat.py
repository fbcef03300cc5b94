"""What the bot may import besides the queue itself."""

from runner import clock
from runner.api.outlook import Outlook
from runner.api.waiting_reasons import STARTS_NEXT
from runner.commands.argument_changes import Argument, arguments
from runner.config.env_file import write_variable
from runner.config.home import BOT_BELL, BOT_LOCK, PAGE_LINK, env_file
from runner.config.option_reader import read_text
from runner.config.options import PRESET, help_rows
from runner.config.options import SECTIONS as OPTION_SECTIONS
from runner.config.settings import FromEnvironment, Seconds, load_as, refusing
from runner.config.workspace import Workspace, environment_of, stamp, validate
from runner.processes.doorbell import Doorbell, ring
from runner.processes.file_changes import Changes
from runner.processes.interpreter import python_command
from runner.processes.linux import descendants
from runner.processes.process_lock import KEEPER_LOCK, held, holder
from runner.snapshot.code_copy import words as snapshot_words
from runner.store.box import Box, BoxKey
from runner.store.connection import QueueLostError, Store, StoreError, prepare_home
from runner.store.listing import Listing, Overview
from runner.supervisor.log_reader import Log
from runner.sweep import sweep_options, sweeps
from runner.text.failures import TELLING, covered_lines, error_line, failure_in, is_deadly, meaningful_lines, root_cause
from runner.text.progress_words import chosen_metrics, percent, progress_words, short_progress
from runner.text.tracebacks import Trace, Weight, chains
from runner.text.words import (
    duration_words,
    end_words,
    gpu_label,
    printable,
    short_time,
    signal_name,
    state_words,
    what_differs,
)
from runner.units import format_duration, format_mib, parse_duration, parse_job_range
