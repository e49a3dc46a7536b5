//! The door for frames about connections that move between nodes.

use ackpace_core::handoff::{self, Refusal, answer_unknown};
use ackpace_wire::cluster::{Frame, Message, Reason};

/// Who answers frames about connections, and hears what becomes of nodes. It is called in the thread of the cluster, and must not
/// wait.
pub trait Flows: Send {
    /// A frame came from another node. Returns the answer to it.
    fn on_flow(&mut self, from: usize, frame: Frame) -> Option<Frame>;
    /// The stream to a node broke. That is no proof that its process has ended.
    fn unreachable(&mut self, _node: usize) {}
    /// The process of a node has ended, with proof.
    fn died(&mut self, _node: usize) {}
}

/// Knows no connection that moved.
#[derive(Debug)]
pub struct AnswerUnknown {
    /// This node and process, as they stand in flows.
    pub me: u16,
    /// Drawn at its start.
    pub boot_nonce: u32,
}

impl Flows for AnswerUnknown {
    fn on_flow(&mut self, _from: usize, frame: Frame) -> Option<Frame> {
        let Frame { flow, epoch, .. } = frame;
        let mine = flow.home == self.me && flow.boot_nonce == self.boot_nonce;
        // Nothing can be prepared here.
        let message = match &frame.message {
            Message::Prepare(_) if !mine => handoff::Message::Nak {
                reason: Refusal::Busy,
                turn: 0,
            },
            message => answer_unknown(of_wire(message)?, mine)?,
        };
        let message = to_wire(message)?;
        Some(Frame {
            flow,
            epoch,
            message,
        })
    }
}

/// What the machines know of a message; `None`: it is not about a connection, or nobody answers it.
fn of_wire(message: &Message) -> Option<handoff::Message> {
    Some(match *message {
        Message::Prepare(_) => handoff::Message::Prepare,
        Message::Handoff { stamp_us, .. } => handoff::Message::Handoff { stamp_us },
        Message::Ready => handoff::Message::Ready,
        Message::Back { turn, .. } => handoff::Message::Back { turn },
        Message::Gone => handoff::Message::Gone,
        Message::Abort => handoff::Message::Abort,
        Message::Renew { stamp_us } => handoff::Message::Renew { stamp_us },
        _ => return None,
    })
}

/// The answers to what nobody here knows.
fn to_wire(message: handoff::Message) -> Option<Message> {
    match message {
        handoff::Message::BackOk => Some(Message::BackOk),
        handoff::Message::Aborted { sent } => Some(Message::Aborted { sent }),
        handoff::Message::Nak { turn, .. } => Some(Message::Nak {
            reason: Reason::Busy,
            turn,
        }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use ackpace_wire::cluster::{FlowId, Object};

    use super::*;

    #[test]
    fn what_nobody_knows_is_answered_so_that_the_other_side_goes_on() {
        let mut flows = AnswerUnknown {
            me: 1,
            boot_nonce: 7,
        };
        let object = Object {
            name: "a".into(),
            size_bytes: 1,
            mtime_ns: 0,
            from_bytes: 0,
            to_bytes: 1,
        };
        let busy = Message::Nak {
            reason: Reason::Busy,
            turn: 0,
        };
        for (mine, message, answer) in [
            (true, Message::Ready, Some(Message::BackOk)),
            (false, Message::Ready, None),
            (true, Message::Renew { stamp_us: 3 }, Some(Message::BackOk)),
            (false, Message::Abort, Some(Message::Aborted { sent: true })),
            (false, Message::Prepare(object), Some(busy)),
            (false, Message::BackOk, None),
        ] {
            let flow = FlowId {
                home: 1,
                boot_nonce: if mine { 7 } else { 8 },
                number: 9,
            };
            let frame = |message| Frame {
                flow,
                epoch: 5,
                message,
            };
            let told = flows.on_flow(0, frame(message));
            assert_eq!(told, answer.map(frame));
        }
    }
}
