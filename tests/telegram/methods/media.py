"""Sending and downloading documents and photos."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bot.local_chat.bot_api.files import StoredFile
from tests.telegram.api_errors import bad_request
from tests.telegram.methods.sending import deliver, draft, formatted, measured
from tests.telegram.photo import dimensions

if TYPE_CHECKING:
    from bot.local_chat.bot_api.files import Upload
    from bot.local_chat.bot_api.formatted_text import FormattedText
    from bot.local_chat.bot_api.objects import JsonObject
    from tests.telegram.params import Params
    from tests.telegram.world import World

LONGEST_SIDES = 10_000
STEEPEST = 20


def send_document(world: World, params: Params) -> JsonObject:
    """Send a file as it is."""
    return _send(world, params, "document")


def send_photo(world: World, params: Params) -> JsonObject:
    """Send a picture as a photo."""
    return _send(world, params, "photo")


def read_caption(world: World, params: Params) -> FormattedText:
    """Read and measure the caption of a call."""
    text = formatted(world, params, params.text("caption"), "caption_entities")
    return measured(text, world.limits.caption, "message caption is too long")


def get_file(world: World, params: Params) -> JsonObject:
    """Return where a file can be downloaded."""
    file_id = params.text("file_id")
    if not file_id:
        raise bad_request("file_id not specified")
    stored = world.files.get(file_id)
    if stored is None:
        raise bad_request("invalid file_id")
    if len(stored.data) > world.limits.download_bytes:
        raise bad_request("file is too big")
    shown = {"file_id": stored.file_id, "file_unique_id": stored.file_unique_id, "file_size": len(stored.data)}
    return shown | {"file_path": stored.path}


def _send(world: World, params: Params, kind: str) -> JsonObject:
    source = _source(world, params, kind)
    caption = read_caption(world, params)
    message = draft(world, params)
    message.caption = caption
    setattr(message, kind, _stored(world, source, kind))
    return deliver(world, message)


def _source(world: World, params: Params, field: str) -> Upload | StoredFile:
    """Return what to send: an uploaded file, or one sent before."""
    reference = params.text(field)
    upload = params.files.get(reference.removeprefix("attach://") if reference.startswith("attach://") else field)
    if upload is not None:
        return upload
    if not reference or reference.startswith("attach://"):
        raise bad_request(f"there is no {field} in the request")
    if reference.startswith(("http://", "https://")):
        raise bad_request("failed to get HTTP URL content")
    stored = world.files.get(reference)
    if stored is None:
        raise bad_request("wrong file identifier/HTTP URL specified")
    return stored


def _stored(world: World, source: Upload | StoredFile, kind: str) -> StoredFile:
    if not isinstance(source, StoredFile):
        return _keep(world, source, kind)
    if source.kind != kind:
        raise bad_request(f"can't use file of type {source.kind.capitalize()} as {kind.capitalize()}")
    return source


def _keep(world: World, upload: Upload, kind: str) -> StoredFile:
    size = len(upload.data)
    if size == 0:
        raise bad_request("file must be non-empty")
    if kind == "document":
        return world.files.add(kind, upload)
    if size > world.limits.photo_bytes:
        limit = world.limits.photo_bytes
        raise bad_request(f"file of size {size} bytes is too big for a photo; the maximum size is {limit} bytes")
    return world.files.add(kind, upload, _fair_dimensions(upload.data))


def _fair_dimensions(data: bytes) -> tuple[int, int]:
    size = dimensions(data)
    if size is None or min(size) == 0:
        raise bad_request("IMAGE_PROCESS_FAILED")
    if sum(size) > LONGEST_SIDES or max(size) > STEEPEST * min(size):
        raise bad_request("PHOTO_INVALID_DIMENSIONS")
    return size
