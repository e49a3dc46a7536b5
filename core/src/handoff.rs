//! A connection that moves between nodes (DTCP, partial hand-off): who owns it, and how each failure ends.
//!
//! The node that accepted a connection is its *home*; the one that serves it for a time is its *guest*. Each end has a
//! machine for each connection: [`Home`], and a [`Guest`] for each *tenure*. Only the owner may send.
//!
//! | home | guest | owner | failure: recovery |
//! |---|---|---|---|
//! | Own | | home | |
//! | Preparing | Preparing | home | NAK, silence, a moment that does not suit: home goes on |
//! | Frozen | Preparing | home | the save fails: thaw |
//! | Offered | Restoring | in doubt | NAK: thaw. No READY in 20 ms: ABORT; ABORTED or the lease's end: take over |
//! | Away | Guest | guest | guest dies, hangs or is cut off: home waits for the lease's end, fences, takes over. Home dies: guest becomes home, or ends if its lease is over |
//! | Returning | Returned | guest, silent | the restore fails: NAK, guest thaws. BACKOK lost: guest asks again, the epoch decides. Home dies: guest ends |
//! | TakeOver | | home | the client has more than was restored: restore that; 40 times, or a hole in what the client sent: RST |
//!
//! **The epoch** names a tenure. Each attempt to move has its own, and whoever owns the connection later a higher one; so a
//! late or doubled message does nothing. **The lease** is counted from the guest's own stamp, which home sends back, and
//! at home from the time of that grant, which is later. Their clocks need not agree, only run at almost equal rates.
//! A guest sends within its lease only (the kernel program of its node sees to it even if its process hangs), and home
//! takes over after it only. A guest whose home dies is told so with proof: another boot nonce, a refused connection,
//! the membership. Silence proves nothing.

mod guest;
mod home;
mod may_move;
#[cfg(test)]
mod tests;

pub use self::guest::Guest;
pub use self::home::Home;
pub use self::may_move::{FROZEN_MAX, Facts, Hold, may_move};

use crate::units::{Instant, US_PER_S};

/// How long a guest may send after the stamp of its last granted request.
pub const LEASE_US: u64 = 500_000;
/// A guest asks for its lease, or for an answer, this often: four requests in a row may be lost.
pub const RENEW_US: u64 = 100_000;
/// Home waits for this much more than the lease: the clocks' rates may differ by a tenth.
pub const MARGIN_US: u64 = 50_000;
/// A lease that is shorter than this when the hand-off comes is refused: home would take over too soon.
pub const LATE_US: u64 = 100_000;
/// The other node has the file in memory within this time, or the connection stays. No byte leaves meanwhile, so a node that hangs
/// costs the client as much.
pub const ANSWER_US: u64 = 400_000;
/// A node that has prepared keeps the file for so long.
pub const PREPARE_US: u64 = 2 * US_PER_S;
/// A socket is saved within this time, or it is thawed.
pub const FREEZE_US: u64 = 20_000;
/// A socket is restored within this time, or that counts as failed.
pub const RESTORE_US: u64 = 200_000;
/// A guest without a lease waits for its home for this long, then closes without a word to the client.
pub const LOST_US: u64 = 10 * US_PER_S;
/// How often home looks at the client's ACK in one take-over. More: RST.
pub const RESTORES_MAX: u32 = 40;
/// How often a guest tells that the client has closed. More: home finds out when it takes over.
pub const GONE_MAX: u32 = 10;

/// What nodes tell each other; `wire/src/cluster.rs` has their meaning and what travels with them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Message {
    Prepare,
    Prepared { stamp_us: u64 },
    Nak { reason: Refusal, turn: u32 },
    Handoff { stamp_us: u64 },
    Ready,
    Back { turn: u32 },
    BackOk,
    Gone,
    Abort,
    Aborted { sent: bool },
    Renew { stamp_us: u64 },
    Renewed { stamp_us: u64 },
}

/// Why a connection does not move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The node speaks another version.
    Version,
    /// The node lacks this version of the file.
    Object,
    /// The node has no room.
    Busy,
    /// The node is being emptied.
    Draining,
    /// The socket could not be restored.
    Restore,
    /// The lease would have ended too soon.
    Late,
    /// The connection is at this node already.
    Itself,
    /// It is on its way, or elsewhere.
    Moving,
    /// The node can't be reached, or did not answer.
    Silent,
    /// The socket could not be frozen and saved.
    Save,
    /// The moment did not suit.
    Hold(Hold),
}

/// What the client has acknowledged, as the flow switch saw it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tracked {
    /// The highest acknowledgement.
    pub ack: u32,
    /// A guest has acknowledged bytes of the client that this node does not have.
    pub hole: bool,
    /// The client has bytes beyond those that the restored socket counts as sent. It would refuse their ACK for ever.
    pub beyond: bool,
}

/// What a machine is told. What does not concern it in its state has no effect.
#[derive(Clone, Copy, Debug)]
pub enum In {
    /// Home: move the connection to this node.
    Move {
        /// The node.
        to: u16,
        /// It is being emptied.
        draining: bool,
        /// A stream to it stands.
        reachable: bool,
    },
    /// Guest: return the connection, since its next request is not for this node, or the node is being emptied.
    Return,
    /// A message about this connection.
    Heard {
        /// The tenure.
        epoch: u32,
        /// The message.
        message: Message,
    },
    /// Answers [`Out::Prepare`].
    Prepared(Result<(), Refusal>),
    /// Answers [`Out::Look`].
    Facts(Facts),
    /// Answers [`Out::Freeze`]: the socket is frozen and its state saved, or it is not.
    Froze(bool),
    /// Answers [`Out::Restore`] and [`Out::TakeOver`]: the socket stands, and sends nothing before [`Out::Claim`].
    Restored(bool),
    /// Answers [`Out::Track`].
    Tracked(Tracked),
    /// The stream to this node broke.
    Unreachable(u16),
    /// This node's process has ended, with proof.
    Died(u16),
    /// The client has closed, or sent RST.
    ClientGone,
}

/// What a machine orders.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Out {
    /// Send a message to the other node.
    Send {
        /// The other node.
        to: u16,
        /// The tenure.
        epoch: u32,
        /// The message.
        message: Message,
    },
    /// Open the file, compare its version, have the bytes in memory.
    Prepare,
    /// Look at the connection.
    Look,
    /// Hold the client's packets, freeze the socket, save its state and keep it until [`Out::Close`].
    Freeze,
    /// The frozen socket goes on, silently; the held packets are released to it.
    Thaw,
    /// The other node owns the connection: its packets go there, the held ones too. The socket ends silently.
    Redirect {
        /// The node.
        to: u16,
    },
    /// Make a socket of the state that came with the message.
    Restore,
    /// From now on packets come here; entries of lower epochs are void. The socket starts.
    Claim {
        /// The owner's epoch.
        epoch: u32,
    },
    /// The socket may send until then; the node's kernel program stops it there.
    Lease {
        /// The end, by this node's clock.
        until: Instant,
    },
    /// The client's packets are dropped, and their ACKs tracked. A socket that is here ends silently.
    Fence,
    /// Tell what the client has acknowledged.
    Track,
    /// Make a socket of the saved state, moved to this ACK and with an empty queue.
    TakeOver {
        /// The first byte that the client lacks.
        ack: u32,
    },
    /// This node is home from now on: make a [`Home`] with this epoch.
    BecomeHome {
        /// The epoch.
        epoch: u32,
    },
    /// End the socket without a word to the client; release what was prepared or saved. The flow's entries go 2 s later.
    Close,
    /// Send RST to the client, count it, and close.
    Reset,
    /// The reason for a step, for the log, the metrics and `ackpace why`.
    Tell(Step),
}

/// What became of a move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// It did not take place.
    Refused(Refusal),
    /// The guest owns the connection.
    Moved,
    /// Home owns it again.
    Returned,
    /// Home owns it again, without the guest's help.
    TookOver,
    /// The guest's lease ended.
    Lapsed,
}

/// The answer to a message about a tenure of which this node has no machine. `mine`: this process is the flow's home.
/// PREPARE makes a [`Guest`] where it is not.
pub fn answer_unknown(message: Message, mine: bool) -> Option<Message> {
    match message {
        Message::Ready | Message::Back { .. } | Message::Renew { .. } if mine => {
            Some(Message::BackOk)
        }
        Message::Gone | Message::Prepare if mine => Some(Message::BackOk),
        // It may have been here, and the client may have bytes of it.
        Message::Handoff { .. } | Message::Abort => Some(Message::Aborted { sent: true }),
        _ => None,
    }
}
