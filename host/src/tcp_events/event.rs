//! What the program in the kernel tells: a hint, and whose socket it is of.

use ackpace_core::hints::{Hint, HintKind};

/// `struct tcp_event` of `host/src/bpf/events.h`.
const EVENT_BYTES: usize = 24;

/// One event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpEvent {
    /// What servers are told.
    pub hint: Hint,
    /// The user of the socket.
    pub uid: u32,
}

impl TcpEvent {
    /// Reads a `struct tcp_event`; `None`: it is none.
    pub fn parse(bytes: &[u8]) -> Option<TcpEvent> {
        let bytes = bytes.get(..EVENT_BYTES)?;
        let long = |at: usize| Some(u64::from_ne_bytes(*bytes.get(at..)?.first_chunk()?));
        let word = |at: usize| Some(u32::from_ne_bytes(*bytes.get(at..)?.first_chunk()?));
        Some(TcpEvent {
            hint: Hint {
                cookie: long(0)?,
                at_ns: long(8)?,
                kind: HintKind::from_number(word(16)?)?,
            },
            uid: word(20)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_read_as_the_program_writes_them() {
        let mut bytes = [7u64, 9].map(u64::to_ne_bytes).concat();
        bytes.extend([4u32, 1_000].map(u32::to_ne_bytes).concat());
        let hint = Hint {
            cookie: 7,
            at_ns: 9,
            kind: HintKind::Reset,
        };
        assert_eq!(TcpEvent::parse(&bytes), Some(TcpEvent { hint, uid: 1_000 }));
        assert_eq!(TcpEvent::parse(&bytes[1..]), None, "cut");
        bytes[16] = 9;
        assert_eq!(TcpEvent::parse(&bytes), None, "no such kind");
    }
}
