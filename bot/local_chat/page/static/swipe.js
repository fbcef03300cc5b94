// A message drawn to the left is replied to, as on a phone.

const ENOUGH_PX = 56;
const FURTHEST_PX = 80;
const SCROLLS_ITSELF = "pre, .keyboard";

export function replyBySwipe(log, reply) {
  let from = null;

  log.addEventListener("touchstart", ({ touches, target }) => {
    const message = target.closest(".message");
    const usable = message && touches.length === 1 && !target.closest(SCROLLS_ITSELF);
    from = usable ? { message, x: touches[0].clientX, y: touches[0].clientY, moved: 0 } : null;
  }, { passive: true });

  log.addEventListener("touchmove", ({ touches }) => {
    if (!from) return;
    const x = touches[0].clientX - from.x;
    const y = touches[0].clientY - from.y;
    if (from.moved === 0 && Math.abs(y) > Math.abs(x)) {
      from = null;
      return;
    }
    from.moved = Math.min(0, Math.max(x, -FURTHEST_PX));
    from.message.style.setProperty("transform", `translateX(${from.moved}px)`);
  }, { passive: true });

  const end = (event) => {
    if (!from) return;
    from.message.style.removeProperty("transform");
    if (event.type === "touchend" && from.moved <= -ENOUGH_PX) reply(Number(from.message.dataset.id));
    from = null;
  };
  log.addEventListener("touchend", end);
  log.addEventListener("touchcancel", end);
}
