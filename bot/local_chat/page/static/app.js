// Puts the parts together, and passes each frame from the server to the part that shows it.

import { Attention } from "./attention.js";
import { Bubbles, replyBySwipe } from "./bubbles.js";
import { Composer } from "./composer.js";
import { byId } from "./dom.js";
import { Files } from "./files.js";
import { Identity } from "./identity.js";
import { Jobs } from "./jobs.js";
import { Keyboards } from "./keyboard.js";
import { setUpLook } from "./look.js";
import { Outbox } from "./outbox.js";
import { Shelf } from "./shelf.js";
import { Connection } from "./socket.js";
import { Strip, countsText } from "./strip.js";
import { Timeline } from "./timeline.js";

const ACTION_MS = 5000;

function start(identity) {
  const connection = new Connection(identity);
  const files = new Files(connection);
  const shelf = new Shelf();
  const keyboards = new Keyboards(connection);
  const bubbles = new Bubbles(files, keyboards, {
    command: (text) => outbox.send(text),
    reply: (message) => composer.replyTo(message),
    jump: (messageId) => timeline.jump(messageId),
  });
  const timeline = new Timeline(bubbles, connection);
  const outbox = new Outbox(connection, files, timeline, shelf);
  const composer = new Composer(outbox, bubbles, shelf);
  const attention = new Attention();
  const openJob = (job) => outbox.send(`/status ${job}`);
  const strip = new Strip(openJob);
  const jobs = new Jobs(openJob);
  let status = null;
  let acting = 0; // the timer of what the bot is doing

  const showState = () => {
    byId("offline").hidden = connection.online;
    byId("app").classList.toggle("away", !connection.online);
    byId("state").textContent = connection.online ? (acting ? "sending a file…" : countsText(status)) : "reconnecting…";
    byId("avatar").dataset.state = connection.online ? (status?.runner_up === false ? "down" : "up") : "away";
  };
  const showEmptiness = () => {
    byId("empty").hidden = !timeline.isEmpty || !connection.online;
  };

  const happened = {
    message: (message) => {
      if (message.client) outbox.arrived(message.client);
      timeline.add(message);
      if (message.document) acting = 0;
      if (!bubbles.isMine(message)) attention.received(message);
    },
    edited: (message) => timeline.change(message),
    chat_action: () => {
      clearTimeout(acting);
      acting = setTimeout(() => ((acting = 0), showState()), ACTION_MS);
      showState();
    },
    callback_answered: (answer) => keyboards.answered(answer),
  };

  connection.addEventListener("hello", async ({ detail: hello }) => {
    setLocked(false);
    Object.assign(bubbles, { me: hello.me, bot: hello.bot });
    composer.commands = hello.commands;
    composer.limits = hello.limits;
    if (hello.messages) catchUp(hello);
    showState();
    showEmptiness();
    const { outbox: unsent, draft } = await shelf.open(hello.seal);
    outbox.restore(unsent);
    composer.restore(draft);
    outbox.flush();
  });
  const catchUp = ({ messages, more }) => {
    const newest = timeline.newest;
    timeline.replaceAll(messages, more);
    composer.remember(messages.filter((message) => bubbles.isMine(message) && message.text).map(({ text }) => text));
    for (const message of messages) {
      if (message.client) outbox.arrived(message.client);
      if (newest && message.message_id > newest && !bubbles.isMine(message)) attention.received(message);
    }
  };
  connection.addEventListener("event", ({ detail: { kind, data } }) => {
    happened[kind]?.(data);
    showEmptiness();
  });
  connection.addEventListener("commands", ({ detail }) => {
    composer.commands = detail.commands;
  });
  connection.addEventListener("status", ({ detail }) => {
    status = detail.status;
    strip.show(status);
    jobs.show(status);
    byId("box").textContent = status?.box ?? "nightshift";
    attention.title = status?.box ? `${status.box} · nightshift` : "nightshift";
    showState();
  });
  connection.addEventListener("offline", () => {
    showState();
    showEmptiness();
  });
  connection.addEventListener("stranger", () => setLocked(true));

  byId("start").addEventListener("click", () => outbox.send("/start"));
  replyBySwipe(byId("log"), (messageId) => composer.replyTo(timeline.get(messageId)));
  setUpLook();
  connection.open();
  if (matchMedia("(pointer: fine)").matches) composer.focus();
  return connection;
}

/** Show how to get in instead of the chat, and clear what another program's page may have left in the browser. */
function setLocked(locked) {
  if (locked && byId("locked").hidden) fetch("/clean", { method: "POST" }).catch(() => {});
  byId("app").hidden = locked;
  byId("locked").hidden = !locked;
}

let connection = null;
async function enter() {
  const identity = await Identity.find();
  setLocked(!identity);
  if (!identity) return;
  if (connection) connection.use(identity);
  else connection = start(identity);
}

window.addEventListener("hashchange", () => location.hash && enter());
enter();
