//! A socket's share of the send memory: as its shell keeps it, as the kernel knows it, and the laws that hold of both.

use ackpace_core::send::{CAP_BYTES_MIN, Refill};
use ackpace_core::units::Instant;
use ackpace_share::SEND_POOL_BYTES_MAX;
use ackpace_share::bound::{Bound, Grant, SEND_BUFFER_BYTES_MIN, SEND_BUFFER_COST_BYTES};

/// The share of one socket; it may have none.
#[derive(Default)]
pub(super) struct SocketShare {
    pub bound: Option<Bound>,
    /// SO_SNDBUF, once it was set.
    send_buffer_bytes: Option<u64>,
    /// The kernel's buffers take half as much again as they hold.
    pub costly: bool,
    /// What it may hold, by the last order. This is not asked of `bound`, which it judges.
    most_bytes: Option<u64>,
    /// What it could hold after it was given bytes last.
    allowed_bytes: Option<u64>,
    /// Its response began while send memory was divided, so it must have a share.
    pub owed: bool,
}

impl SocketShare {
    /// As `server/src/worker/divide.rs` holds it. Whether SO_SNDBUF changes.
    pub fn hold(&mut self, grant: Grant) -> bool {
        self.bound.get_or_insert(Bound::new(grant)).change(grant);
        let bytes = grant.share_bytes.clamp(CAP_BYTES_MIN, SEND_POOL_BYTES_MAX);
        self.most_bytes = Some(bytes);
        self.send_buffer_bytes.replace(bytes) != Some(bytes)
    }

    /// It has none any more.
    pub fn end(&mut self) {
        (self.bound, self.most_bytes) = (None, None);
    }

    /// What it may be offered while it holds this much.
    pub fn room_bytes(&mut self, held_bytes: u64, now: Instant) -> u64 {
        let Some(bound) = &mut self.bound else {
            assert!(!self.owed, "a byte is sent before its socket has a share");
            return u64::MAX;
        };
        bound.offer_bytes(held_bytes, now)
    }

    /// It took bytes, and holds `held_bytes` now.
    pub fn given(&mut self, taken_bytes: u64, held_bytes: u64) {
        if taken_bytes > 0 {
            self.allowed_bytes = self.most_bytes;
        }
        self.check_held(held_bytes);
    }

    fn kernel_bytes(&self) -> Option<u64> {
        let bytes = self.send_buffer_bytes?;
        Some(bytes.max(SEND_BUFFER_BYTES_MIN))
    }

    /// What its buffers take.
    fn taken_bytes(&self, held_bytes: u64) -> u64 {
        let cost_bytes = match (held_bytes, self.costly) {
            (0, _) => 0,
            (held_bytes, true) => SEND_BUFFER_COST_BYTES + held_bytes / 2,
            (_, false) => SEND_BUFFER_COST_BYTES,
        };
        held_bytes.saturating_add(cost_bytes)
    }

    /// Whether the kernel takes another buffer.
    pub fn takes(&self, held_bytes: u64) -> bool {
        let kernel_bytes = self.kernel_bytes();
        kernel_bytes.is_none_or(|bytes| self.taken_bytes(held_bytes) < bytes)
    }

    /// Whether SO_SNDBUF lets the kernel call it writable.
    pub fn is_writable(&self, held_bytes: u64) -> bool {
        let taken_bytes = self.taken_bytes(held_bytes);
        let level_bytes = taken_bytes.saturating_add(taken_bytes / 2);
        self.kernel_bytes().is_none_or(|bytes| level_bytes <= bytes)
    }

    fn check_held(&self, held_bytes: u64) {
        let allowed_bytes = self.allowed_bytes.unwrap_or(u64::MAX);
        assert!(
            held_bytes <= allowed_bytes,
            "a socket holds {held_bytes} bytes, and had a share of {allowed_bytes} when it was filled"
        );
    }

    /// What holds at any time.
    pub fn check(&self, held_bytes: u64) {
        self.check_held(held_bytes);
        let Some(bound) = &self.bound else { return };
        let in_vain = self.is_writable(held_bytes) && bound.room_bytes(held_bytes) == 0;
        assert!(
            !in_vain,
            "a socket with {held_bytes} bytes becomes writable, and its share has no room: {bound:?}"
        );
    }

    /// What holds when the worker has no more orders. `fill_bytes`: how far it fills the socket.
    pub fn check_quiet(&self, has_share: bool, fill_bytes: Option<u64>) {
        assert_eq!(
            self.bound.is_some(),
            has_share,
            "worker and socket disagree about who has a share"
        );
        let most_bytes = self.most_bytes.unwrap_or(u64::MAX);
        assert!(
            fill_bytes.is_none_or(|bytes| bytes <= most_bytes),
            "a socket with a share of {most_bytes} bytes is filled up to {fill_bytes:?}"
        );
    }

    /// An order to fill the socket; the share may have become smaller since it was made.
    pub fn check_refill(&self, refill: &Refill) {
        // The kernel takes 0 as no bound (tcp_notsent_lowat), and would report the socket writable again and again.
        let calls = refill.epollout_bytes > 0 && refill.lowat_bytes > 0;
        assert!(calls, "a socket that is full when it is empty: {refill:?}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn share(share_bytes: u64) -> SocketShare {
        let mut share = SocketShare::default();
        share.hold(Grant::start(share_bytes));
        share
    }

    #[test]
    fn a_share_that_shrinks_below_what_is_in_flight_breaks_no_law() {
        let mut socket = share(60_000);
        socket.given(60_000, 60_000);
        socket.hold(Grant::start(10_000));
        socket.check(60_000);
        socket.check_quiet(true, Some(10_000));
    }

    #[test]
    fn each_broken_law_is_found() {
        let owed = || SocketShare {
            owed: true,
            ..SocketShare::default()
        };
        let in_vain = || SocketShare {
            send_buffer_bytes: Some(1 << 20),
            ..share(60_000)
        };
        let refill = Refill {
            bytes: 1,
            lowat_bytes: 1,
            epollout_bytes: 0,
        };
        let breaks: [(&str, &dyn Fn()); 5] = [
            ("filled beyond it", &|| share(60_000).given(1, 60_001)),
            ("none", &|| {
                assert!(owed().room_bytes(0, Instant { us: 0 }) > 0)
            }),
            ("writable in vain", &|| in_vain().check(60_000)),
            ("more ordered", &|| {
                share(60_000).check_quiet(true, Some(60_001));
            }),
            ("no mark", &|| share(60_000).check_refill(&refill)),
        ];
        for (law, breaks) in breaks {
            let found = std::panic::catch_unwind(std::panic::AssertUnwindSafe(breaks));
            assert!(found.is_err(), "{law}");
        }
    }
}
