//! How a socket of another program is held to its share of the send memory, from outside (`host/`): which change follows
//! from the share, and from what the socket has now.
//!
//! Two settings bound what it holds. A clamp of the congestion window bounds what is in flight; TCP_NOTSENT_LOWAT bounds
//! what is unsent, and wakes the program when half of that is left. Both are read before they are written: whatever a
//! program or a human has set stays, and its socket is left alone.
//!
//! A clamp is not free. With it Linux sets the threshold of slow start to the same value (`bpf_sol_tcp_setsockopt`), so
//! the window that a loss has taught is forgotten, and the socket starts slowly up to its clamp. So a clamp is written
//! seldom: not while it would not bind, not for less than a quarter more, and after a loss no higher than half above the
//! present window.
//!
//! No order is free either: where tens of thousands send, a sixth of a look went into orders, most of them up and down again with
//! a share that moved a little. So a setting has a band (`held`). Clamp and TCP_NOTSENT_LOWAT together never exceed the share, so all
//! settings together never exceed what is divided. They aim a little below it, so that a small fall needs no order, and rise
//! only where a socket gains by it.

use ackpace_core::limits::TARGET_US_MAX;
use ackpace_core::units::{KIB, bytes_in};

use super::eatbt::SHARE_SEGMENTS_MIN;
use super::{Control, SHARE_SEGMENTS_START};

/// The least TCP_NOTSENT_LOWAT for a socket of another program whose share has room for it. A smaller one wakes the
/// program more often; a larger one holds more for clients that take little.
const LOWAT_BYTES_MIN: u64 = 16 * KIB;
/// The least clamp of a socket whose congestion control models its path, in segments: twice bbr's own least window. With
/// less it could not measure.
const CLAMP_MODEL_SEGMENTS_MIN: u64 = 8;
/// What is set allows so much less than the share, one part in this: a share that falls by less needs no order. Less: more
/// orders. More: more memory lies idle.
const SETTING_BELOW_PART: u64 = 16;
/// A clamp rises by one part in this of itself at least, since it erases what a loss has taught. Less: a share that goes up and
/// down by a tenth takes an order each time. More: a socket may be further below its share.
const CLAMP_RISE_PART_MIN: u64 = 4;
/// The same for a control that models its path: a clamp that is too small makes it measure less.
const CLAMP_MODEL_RISE_PART_MIN: u64 = 8;
/// TCP_NOTSENT_LOWAT changes by one part in this of itself at least, where it is within the share. Less: more orders. More: the
/// program is woken more often than its share asks for, 1.5 times with this one.
const LOWAT_PART_MIN: u64 = 2;

/// A clamp, or a threshold of slow start, that bounds nothing (`TCP_INFINITE_SSTHRESH`). A new socket's clamp is larger.
pub const NONE_SEGMENTS: u32 = 0x7fff_ffff;

/// What holds a socket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Setting {
    /// `snd_cwnd_clamp`; [`NONE_SEGMENTS`] or more: none.
    pub clamp_segments: u32,
    /// TCP_NOTSENT_LOWAT; 0: not set, `net.ipv4.tcp_notsent_lowat` holds.
    pub lowat_bytes: u32,
}

/// What a look at a socket shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// What it has.
    pub now: Setting,
    /// What we have set, by the record; in a field 0: nothing. `None`: we never changed it.
    pub ours: Option<Setting>,
    /// Its program has fixed SO_SNDBUF.
    pub buffer_is_fixed: bool,
    /// `tcpi_snd_cwnd`.
    pub cwnd_segments: u32,
    /// `tcpi_snd_ssthresh`; [`NONE_SEGMENTS`]: no loss has set it.
    pub threshold_segments: u32,
    /// MSS, above 0.
    pub segment_bytes: u64,
    /// What it delivered since the last sample; 0: nothing, or not known.
    pub rate_bytes_per_s: u64,
    /// Its shortest round trip; 0: not known.
    pub rtt_min_us: u64,
    /// Its client's window.
    pub window_bytes: u64,
    /// Its congestion control.
    pub control: Control,
    /// It sent again in the last seconds.
    pub lost_lately: bool,
    /// The largest clamp of the last seconds: it may have that again at once. 0: it had none.
    pub lately_segments: u32,
}

/// Why a socket is left alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum HandsOff {
    /// Its program has set SO_SNDBUF.
    SendBuffer,
    /// Its program has set TCP_NOTSENT_LOWAT.
    Lowat,
    /// A route or another program has clamped its window.
    Clamp,
    /// It is not among those that are tuned, or not any more.
    Unmatched,
    /// All together hold so little that nothing has to be divided.
    Ample,
}

impl HandsOff {
    /// Every one, in the order of the enum.
    pub const ALL: [HandsOff; 5] = [
        HandsOff::SendBuffer,
        HandsOff::Lowat,
        HandsOff::Clamp,
        HandsOff::Unmatched,
        HandsOff::Ample,
    ];

    /// The stable name, as it stands in log and metrics.
    pub fn name(self) -> &'static str {
        match self {
            HandsOff::SendBuffer => "program_set_sndbuf",
            HandsOff::Lowat => "program_set_lowat",
            HandsOff::Clamp => "clamped_by_others",
            HandsOff::Unmatched => "unmatched",
            HandsOff::Ample => "ample",
        }
    }
}

/// Why a setting changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cause {
    /// It is seen for the first time.
    Joined,
    /// Its share has become smaller.
    ShareFell,
    /// Its share has become larger, and it can use that.
    ShareRose,
    /// Its rate has changed, and so what it holds unsent.
    Rate,
    /// It sends nothing now; its next answer starts like a first one.
    Idle,
}

impl Cause {
    /// Every one, in the order of the enum.
    pub const ALL: [Cause; 5] = [
        Cause::Joined,
        Cause::ShareFell,
        Cause::ShareRose,
        Cause::Rate,
        Cause::Idle,
    ];

    /// The stable name, as it stands in log and metrics.
    pub fn name(self) -> &'static str {
        match self {
            Cause::Joined => "joined",
            Cause::ShareFell => "share_fell",
            Cause::ShareRose => "share_rose",
            Cause::Rate => "rate",
            Cause::Idle => "idle",
        }
    }
}

/// What is done to a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Nothing: it has what it should have.
    Keep,
    /// Nothing: it is not ours to change.
    Leave(HandsOff),
    /// What we set is undone.
    GiveBack(HandsOff),
    /// It gets another setting.
    Set(Setting, Cause),
}

/// The next step for a socket with this share of the send memory; `None`: it sends nothing. `lowat_bytes_most` is what
/// the operator allows by `net.ipv4.tcp_notsent_lowat`.
pub fn step(seen: &Seen, share_bytes: Option<u64>, lowat_bytes_most: u32) -> Step {
    if let Some(why) = hands_off(seen) {
        return match seen.ours {
            Some(_) => Step::GiveBack(why),
            None => Step::Leave(why),
        };
    }
    let (to, cause) = match share_bytes {
        Some(share_bytes) => held(seen, share_bytes, lowat_bytes_most),
        None => (rested(seen), Cause::Idle),
    };
    match to == seen.now {
        true => Step::Keep,
        false => Step::Set(to, cause),
    }
}

/// Whether somebody else has set what we would set, before us or since.
fn hands_off(seen: &Seen) -> Option<HandsOff> {
    let ours = seen.ours.unwrap_or_default();
    let clamp_is_ours = match ours.clamp_segments {
        0 => seen.now.clamp_segments >= NONE_SEGMENTS,
        set => seen.now.clamp_segments == set,
    };
    match () {
        () if seen.buffer_is_fixed => Some(HandsOff::SendBuffer),
        () if seen.now.lowat_bytes != ours.lowat_bytes => Some(HandsOff::Lowat),
        () if !clamp_is_ours => Some(HandsOff::Clamp),
        () => None,
    }
}

/// A share as a setting: bytes for [`TARGET_US_MAX`] unsent, half of the share at most, and the rest in flight. Both together are the
/// share at most, or the least clamp and a segment.
fn wanted(seen: &Seen, share_bytes: u64, lowat_bytes_most: u32) -> Setting {
    let segment_bytes = seen.segment_bytes.max(1);
    let least_segments = least_segments(seen);
    let by_rate = match seen.rate_bytes_per_s {
        0 => share_bytes / 2,
        rate => bytes_in(TARGET_US_MAX, rate).max(LOWAT_BYTES_MIN),
    };
    let beside_bytes = share_bytes.saturating_sub(segment_bytes.saturating_mul(least_segments));
    let lowat_bytes = by_rate.min(share_bytes / 2).min(beside_bytes);
    let lowat_bytes = lowat_bytes.max(segment_bytes);
    let segments = share_bytes.saturating_sub(lowat_bytes) / segment_bytes;
    let segments = segments.max(least_segments);
    Setting {
        clamp_segments: segments.min(u64::from(NONE_SEGMENTS)) as u32,
        lowat_bytes: lowat_bytes.min(lowat_bytes_most.into()) as u32,
    }
}

/// The least clamp. A control that models its path measures less and less under a clamp below its path's product, so it
/// keeps that, with a quarter more.
fn least_segments(seen: &Seen) -> u64 {
    match seen.control {
        Control::Reno | Control::Cubic => SHARE_SEGMENTS_MIN,
        Control::Model => {
            let product_bytes = bytes_in(seen.rtt_min_us, seen.rate_bytes_per_s);
            let segments = product_bytes.div_ceil(seen.segment_bytes.max(1));
            (segments + segments / 4 + 2).max(CLAMP_MODEL_SEGMENTS_MIN)
        }
    }
}

/// The setting of a socket that sends, and what moved it.
///
/// - It has to change where it allows more than the share. What is set then allows one part in [`SETTING_BELOW_PART`] less than the
///   share, so that the next small fall changes nothing.
/// - A clamp rises where it binds, by one part in [`CLAMP_RISE_PART_MIN`] at least.
/// - TCP_NOTSENT_LOWAT changes by one part in [`LOWAT_PART_MIN`] at least. It decides how often the program is woken, and not how fast
///   the connection is.
///
/// So one that uses all that it may has at least two thirds of its share: four fifths of 15/32 in flight and two thirds of 15/32 unsent.
fn held(seen: &Seen, share_bytes: u64, lowat_bytes_most: u32) -> (Setting, Cause) {
    let aim_bytes = share_bytes - share_bytes / SETTING_BELOW_PART;
    let wanted = wanted(seen, aim_bytes, lowat_bytes_most);
    let lowat_bytes = match differs(seen.now.lowat_bytes, wanted.lowat_bytes) {
        true => wanted.lowat_bytes,
        false => seen.now.lowat_bytes,
    };
    let kept = Setting {
        clamp_segments: clamp(seen, wanted.clamp_segments, Fits::Yes),
        lowat_bytes,
    };
    // The least may be more than the share. Then it is what has to be kept to, but for an eighth: it moves with the rate.
    let most_bytes = match allowed_bytes(seen, wanted) {
        least_bytes if least_bytes > share_bytes => least_bytes.saturating_add(least_bytes / 8),
        _ => share_bytes,
    };
    let to = match allowed_bytes(seen, kept) <= most_bytes {
        true => kept,
        false => Setting {
            clamp_segments: clamp(seen, wanted.clamp_segments, Fits::No),
            ..wanted
        },
    };
    let cause = match to.clamp_segments {
        _ if seen.ours.is_none() => Cause::Joined,
        segments if segments < seen.now.clamp_segments => Cause::ShareFell,
        segments if segments > seen.now.clamp_segments => Cause::ShareRose,
        _ => Cause::Rate,
    };
    (to, cause)
}

/// What this setting lets the socket hold; without a clamp what its window has now.
fn allowed_bytes(seen: &Seen, setting: Setting) -> u64 {
    let segments = match setting.clamp_segments {
        NONE_SEGMENTS.. => seen.cwnd_segments,
        segments => segments,
    };
    let flight_bytes = seen.segment_bytes.max(1).saturating_mul(segments.into());
    flight_bytes.saturating_add(setting.lowat_bytes.into())
}

/// Whether the present setting is within the share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fits {
    /// It is.
    Yes,
    /// It is not.
    No,
}

/// The clamp for which the share allows `wanted_segments`.
fn clamp(seen: &Seen, wanted_segments: u32, fits: Fits) -> u32 {
    let now = seen.now.clamp_segments;
    let cwnd = seen.cwnd_segments;
    let has_learnt =
        seen.lost_lately || now >= NONE_SEGMENTS && seen.threshold_segments < NONE_SEGMENTS;
    // How far slow start may lead a path that has shown a limit.
    let most_segments = match has_learnt {
        true => cwnd.saturating_add(cwnd / 2).max(seen.lately_segments),
        false => NONE_SEGMENTS,
    };
    match now >= NONE_SEGMENTS {
        // None yet: it stays so while it would not bind, if there is a threshold to lose.
        true if has_learnt && cwnd < wanted_segments / 2 => now,
        true => wanted_segments.min(most_segments),
        false if wanted_segments < now && fits == Fits::No => wanted_segments,
        // It may have more, and does not use what it has, or could not.
        false if !binds(seen) => now,
        false => match wanted_segments.min(most_segments) {
            more if is_worth_a_clamp(seen.control, now, more) => more,
            _ => now,
        },
    }
}

/// Whether the clamp is what bounds the bytes in flight: the window has come near to it, and the client's own is larger.
fn binds(seen: &Seen) -> bool {
    let (now, cwnd) = (
        u64::from(seen.now.clamp_segments),
        u64::from(seen.cwnd_segments),
    );
    cwnd * 4 >= now * 3 && seen.window_bytes > now.saturating_mul(seen.segment_bytes)
}

/// Whether a larger clamp is worth the threshold of slow start that it overwrites.
fn is_worth_a_clamp(control: Control, now: u32, wanted: u32) -> bool {
    let part = match control {
        Control::Reno | Control::Cubic => CLAMP_RISE_PART_MIN,
        Control::Model => CLAMP_MODEL_RISE_PART_MIN,
    };
    let (now, wanted) = (u64::from(now), u64::from(wanted));
    wanted > now && (wanted - now) * part >= now
}

/// A socket that sends nothing keeps its setting, but for a clamp below a first flight.
fn rested(seen: &Seen) -> Setting {
    Setting {
        clamp_segments: seen.now.clamp_segments.max(SHARE_SEGMENTS_START as u32),
        ..seen.now
    }
}

/// Whether TCP_NOTSENT_LOWAT is worth an order: by half more, or by half less.
fn differs(now: u32, wanted: u32) -> bool {
    let (now, wanted) = (u64::from(now), u64::from(wanted));
    now.abs_diff(wanted) * LOWAT_PART_MIN >= now.max(1) && now != wanted
}

#[cfg(test)]
mod tests;
