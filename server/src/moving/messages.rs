//! Between what the machines say and what goes over the wire.

use ackpace_core::handoff::{Message as Plain, Refusal};
use ackpace_wire::cluster::{Message, Reason};

/// What the machines know of a message; `None`: it is not about a connection.
pub fn of_wire(message: &Message) -> Option<Plain> {
    Some(match *message {
        Message::Prepare(_) => Plain::Prepare,
        Message::Prepared { stamp_us } => Plain::Prepared { stamp_us },
        Message::Nak { reason, turn } => Plain::Nak {
            reason: refusal_of(reason),
            turn,
        },
        Message::Handoff { stamp_us, .. } => Plain::Handoff { stamp_us },
        Message::Ready => Plain::Ready,
        Message::Back { turn, .. } => Plain::Back { turn },
        Message::BackOk => Plain::BackOk,
        Message::Gone => Plain::Gone,
        Message::Abort => Plain::Abort,
        Message::Aborted { sent } => Plain::Aborted { sent },
        Message::Renew { stamp_us } => Plain::Renew { stamp_us },
        Message::Renewed { stamp_us } => Plain::Renewed { stamp_us },
        _ => return None,
    })
}

/// A message that carries nothing else; `None`: it carries a state.
pub fn plain(message: Plain) -> Option<Message> {
    Some(match message {
        Plain::Prepared { stamp_us } => Message::Prepared { stamp_us },
        Plain::Nak { reason, turn } => Message::Nak {
            reason: reason_of(reason),
            turn,
        },
        Plain::Ready => Message::Ready,
        Plain::BackOk => Message::BackOk,
        Plain::Gone => Message::Gone,
        Plain::Abort => Message::Abort,
        Plain::Aborted { sent } => Message::Aborted { sent },
        Plain::Renew { stamp_us } => Message::Renew { stamp_us },
        Plain::Renewed { stamp_us } => Message::Renewed { stamp_us },
        Plain::Prepare | Plain::Handoff { .. } | Plain::Back { .. } => return None,
    })
}

fn refusal_of(reason: Reason) -> Refusal {
    match reason {
        Reason::Version => Refusal::Version,
        Reason::Object => Refusal::Object,
        Reason::Busy => Refusal::Busy,
        Reason::Draining => Refusal::Draining,
        Reason::Restore => Refusal::Restore,
        Reason::Late => Refusal::Late,
    }
}

pub fn reason_of(refusal: Refusal) -> Reason {
    match refusal {
        Refusal::Version => Reason::Version,
        Refusal::Object => Reason::Object,
        Refusal::Draining => Reason::Draining,
        Refusal::Restore => Reason::Restore,
        Refusal::Late => Reason::Late,
        Refusal::Busy
        | Refusal::Itself
        | Refusal::Moving
        | Refusal::Silent
        | Refusal::Save
        | Refusal::Hold(_) => Reason::Busy,
    }
}
