//! What a take-over makes of a connection that was saved when it left: the same, as far as its client has got meanwhile.

use super::{Handoff, Response};

/// What the other node's clock may have run ahead of this one's, and the client has seen.
const AHEAD_US: u64 = 50_000;

impl Response {
    /// Head and body.
    pub fn len_bytes(&self) -> u64 {
        self.head.len() as u64 + self.object.to_bytes - self.object.from_bytes
    }
}

impl Handoff {
    /// The same connection at this acknowledgement, with nothing in flight. `None`: that lies outside of its response.
    pub fn acknowledged(&self, ack: u32) -> Option<Handoff> {
        let further = i64::from(ack.wrapping_sub(self.tcp.snd_nxt) as i32);
        let mut state = self.clone();
        (state.tcp.snd_una, state.tcp.snd_nxt) = (ack, ack);
        state.tcp.snd_wl1 = state.tcp.rcv_nxt.wrapping_sub(1); // the client's next segment tells its window
        let progress = &mut state.progress;
        progress.given_bytes = progress.given_bytes.checked_add_signed(further)?;
        progress.acked_bytes = progress.given_bytes;
        match &mut state.response {
            Some(response) => {
                response.sent_bytes = response.sent_bytes.checked_add_signed(further)?;
                (response.sent_bytes <= response.len_bytes()).then_some(state)
            }
            None => (further == 0).then_some(state),
        }
    }

    /// The same, with all that the client may hold above a hole in flight, up to `held_end`: an ACK beyond SND.NXT would be refused for
    /// ever. `None`: that lies outside of its response. A client without SACK may hold a window of it.
    pub fn holding(mut self, held_end: Option<u32>) -> Option<Handoff> {
        let Some(response) = &mut self.response else {
            return Some(self);
        };
        let left_bytes = response.len_bytes().checked_sub(response.sent_bytes)?;
        let above = held_end.map_or(0, |end| end.wrapping_sub(self.tcp.snd_una) as i32);
        let flight_bytes = match self.tcp.sack {
            true => above.max(0).unsigned_abs(),
            false => left_bytes.min(self.tcp.max_window_bytes.into()) as u32,
        };
        self.tcp.snd_nxt = self.tcp.snd_una.wrapping_add(flight_bytes);
        response.sent_bytes += u64::from(flight_bytes);
        self.progress.given_bytes += u64::from(flight_bytes);
        (u64::from(flight_bytes) <= left_bytes).then_some(self)
    }

    /// The same after so long a time: its timestamps go on where the other node's were, or the client would take these for old ones
    /// (PAWS, RFC 7323 section 5).
    pub fn later(mut self, us: u64) -> Handoff {
        if let Some(timestamp) = &mut self.tcp.timestamp {
            let counts_us = *timestamp & 1;
            let ticks = match counts_us {
                1 => us.saturating_add(AHEAD_US),
                _ => us.saturating_add(AHEAD_US) / 1_000,
            };
            *timestamp = timestamp.wrapping_add(ticks as u32) & !1 | counts_us;
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::tests::handoff;

    proptest! {
        #[test]
        fn a_take_over_goes_on_at_the_clients_byte(
            state in handoff(),
            further in 0u32..2_000,
            above in 0u32..2_000,
            us in 0u64..10_000_000,
        ) {
            let ack = state.tcp.snd_nxt.wrapping_add(further);
            let resumed = state.acknowledged(ack).and_then(|it| it.holding(Some(ack.wrapping_add(above))));
            let Some(response) = &state.response else {
                prop_assert_eq!(resumed.is_some(), further == 0, "nothing was under way");
                return Ok(());
            };
            let left_bytes = response.len_bytes() - response.sent_bytes;
            let flight_bytes = match state.tcp.sack {
                true => u64::from(above),
                false => u64::from(state.tcp.max_window_bytes).min(left_bytes.saturating_sub(further.into())),
            };
            let fits = u64::from(further) + flight_bytes <= left_bytes;
            prop_assert_eq!(resumed.is_some(), fits);
            if let Some(resumed) = resumed {
                let tcp = &resumed.tcp;
                prop_assert_eq!(tcp.snd_una, ack);
                prop_assert_eq!(u64::from(tcp.snd_nxt.wrapping_sub(ack)), flight_bytes);
                let sent_bytes = resumed.response.as_ref().map(|it| it.sent_bytes);
                prop_assert_eq!(sent_bytes, Some(response.sent_bytes + u64::from(further) + flight_bytes));
                let before = tcp.timestamp;
                let after = resumed.clone().later(us).tcp.timestamp;
                prop_assert_eq!(before.is_some(), after.is_some());
                if let (Some(before), Some(after)) = (before, after) {
                    prop_assert_eq!(before & 1, after & 1);
                    let per_ms = if before & 1 == 1 { 1_000 } else { 1 };
                    prop_assert!(u64::from(after.wrapping_sub(before)) >= us / 1_000 * per_ms);
                }
            }
        }
    }
}
