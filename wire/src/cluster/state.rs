//! The state of a connection that moves. Whoever reads it can inject bytes into the connection: no log has it, so none of
//! the types that hold sequence numbers prints them.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use super::Bad;
use super::bytes::{Reader, put_bytes};
use crate::limits::{
    CLUSTER_CC_BYTES_MAX, CLUSTER_HEAD_BYTES_MAX, CLUSTER_OBJECT_BYTES_MAX,
    CLUSTER_QUEUE_BYTES_MAX, TCP_WINDOW_BYTES_MAX,
};

/// The largest shift of a window (RFC 7323 section 2.3). Above: refused.
const WSCALE_MAX: u8 = 14;
/// The smallest segment that Linux accepts (`TCP_MIN_SND_MSS`). Below: refused.
const MSS_BYTES_MIN: u16 = 48;

/// The two ends of the connection, both IPv4 or both IPv6.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tuple {
    /// The client.
    pub client: SocketAddr,
    /// The address that the client knows, which every node has.
    pub server: SocketAddr,
}

/// What TCP has agreed and counted, by RFC 9293's and Linux's names. Bytes `snd_una..snd_nxt` are put back as sent.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Tcp {
    /// SND.UNA: the first byte that the client has not acknowledged.
    pub snd_una: u32,
    /// SND.NXT: the next byte to be sent.
    pub snd_nxt: u32,
    /// RCV.NXT: the next byte expected from the client, behind the receive queue.
    pub rcv_nxt: u32,
    /// SND.WL1: the segment that updated the window last (`struct tcp_repair_window`, with the next four).
    pub snd_wl1: u32,
    /// SND.WND: the client's window.
    pub snd_wnd_bytes: u32,
    /// The largest window that the client has had.
    pub max_window_bytes: u32,
    /// RCV.WND: the own window.
    pub rcv_wnd_bytes: u32,
    /// RCV.NXT when that window was told last.
    pub rcv_wup: u32,
    /// `mss_clamp`: TCP_MAXSEG before the restored socket connects.
    pub mss_bytes: u16,
    /// Snd.Wind.Shift (RFC 7323) and the own one; `None` without window scaling.
    pub wscales: Option<(u8, u8)>,
    /// SACK is permitted (RFC 2018).
    pub sack: bool,
    /// TCP_TIMESTAMP, its lowest bit for microseconds included; `None` without timestamps.
    pub timestamp: Option<u32>,
    /// ECN was negotiated (RFC 3168).
    pub ecn: bool,
}

impl fmt::Debug for Tcp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let flight_bytes = self.snd_nxt.wrapping_sub(self.snd_una);
        write!(f, "Tcp {{ flight_bytes: {flight_bytes}, .. }}")
    }
}

/// What congestion control has learnt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Congestion {
    /// Its name (TCP_CONGESTION).
    pub name: String,
    /// cwnd (RFC 5681).
    pub cwnd_segments: u32,
    /// ssthresh.
    pub ssthresh_segments: u32,
    /// SRTT (RFC 6298).
    pub srtt_us: u32,
    /// RTTVAR.
    pub rttvar_us: u32,
    /// SO_MAX_PACING_RATE; `u64::MAX` without.
    pub pacing_bytes_per_s: u64,
}

/// A version of a file and a part of it. Files of equal size and time are taken for equal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object {
    /// The path below the root.
    pub name: String,
    /// The file's length.
    pub size_bytes: u64,
    /// The file's modification, ns since 1970.
    pub mtime_ns: i64,
    /// The first byte of the part.
    pub from_bytes: u64,
    /// The byte behind the part.
    pub to_bytes: u64,
}

/// The response that is being sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// What its body is.
    pub object: Object,
    /// Its head as home wrote it, so that the client sees what one node would send.
    pub head: Vec<u8>,
    /// Bytes of head and body that the client has acknowledged.
    pub acked_bytes: u64,
}

/// A connection.
#[derive(Clone, PartialEq, Eq)]
pub struct Handoff {
    /// Its ends.
    pub tuple: Tuple,
    /// Its state.
    pub tcp: Tcp,
    /// Its path.
    pub congestion: Congestion,
    /// What it carries; `None` between two requests.
    pub request: Option<Request>,
    /// Bytes of the client in the socket.
    pub received: Vec<u8>,
    /// Bytes of the client that were read and not yet parsed; they precede those in the socket.
    pub unparsed: Vec<u8>,
}

impl fmt::Debug for Handoff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Handoff {{ {:?}, .. }}", self.tuple)
    }
}

impl Tuple {
    pub(super) fn encode(&self, to: &mut Vec<u8>) {
        to.push(if self.client.is_ipv4() { 4 } else { 6 });
        for end in [self.client, self.server] {
            match end.ip() {
                IpAddr::V4(ip) => to.extend(ip.octets()),
                IpAddr::V6(ip) => to.extend(ip.octets()),
            }
            to.extend(end.port().to_le_bytes());
        }
    }

    pub(super) fn parse(body: &mut Reader<'_>) -> Result<Tuple, Bad> {
        let family = body.u8()?;
        let mut end = || {
            let ip: IpAddr = match family {
                4 => body.address::<4>()?.into(),
                6 => body.address::<16>()?.into(),
                _ => return Err(Bad::Value),
            };
            match body.u16()? {
                0 => Err(Bad::Value),
                port => Ok(SocketAddr::new(ip, port)),
            }
        };
        let (client, server) = (end()?, end()?);
        Ok(Tuple { client, server })
    }
}

const SACK: u8 = 1;
const WSCALE: u8 = 2;
const TIMESTAMP: u8 = 4;
const ECN: u8 = 8;

impl Tcp {
    pub(super) fn encode(&self, to: &mut Vec<u8>) {
        for number in [self.snd_una, self.snd_nxt, self.rcv_nxt, self.snd_wl1] {
            to.extend(number.to_le_bytes());
        }
        let windows = [self.snd_wnd_bytes, self.max_window_bytes];
        for number in windows
            .into_iter()
            .chain([self.rcv_wnd_bytes, self.rcv_wup])
        {
            to.extend(number.to_le_bytes());
        }
        to.extend(self.mss_bytes.to_le_bytes());
        let option = |set: bool, bit: u8| if set { bit } else { 0 };
        to.push(
            option(self.sack, SACK)
                | option(self.wscales.is_some(), WSCALE)
                | option(self.timestamp.is_some(), TIMESTAMP)
                | option(self.ecn, ECN),
        );
        let (client, own) = self.wscales.unwrap_or_default();
        to.extend([client, own]);
        to.extend(self.timestamp.unwrap_or_default().to_le_bytes());
    }

    pub(super) fn parse(body: &mut Reader<'_>) -> Result<Tcp, Bad> {
        let mut tcp = Tcp {
            snd_una: body.u32()?,
            snd_nxt: body.u32()?,
            rcv_nxt: body.u32()?,
            snd_wl1: body.u32()?,
            snd_wnd_bytes: body.u32()?,
            max_window_bytes: body.u32()?,
            rcv_wnd_bytes: body.u32()?,
            rcv_wup: body.u32()?,
            mss_bytes: body.u16()?,
            ..Tcp::default()
        };
        let (options, wscales, timestamp) = (body.u8()?, (body.u8()?, body.u8()?), body.u32()?);
        let has = |bit| options & bit != 0;
        (tcp.sack, tcp.ecn) = (has(SACK), has(ECN));
        tcp.wscales = has(WSCALE).then_some(wscales);
        tcp.timestamp = has(TIMESTAMP).then_some(timestamp);
        let unused = !has(WSCALE) && wscales != (0, 0) || !has(TIMESTAMP) && timestamp != 0;
        let unknown = options > SACK | WSCALE | TIMESTAMP | ECN;
        if unused || unknown || !tcp.is_possible() {
            return Err(Bad::Value);
        }
        Ok(tcp)
    }

    fn is_possible(&self) -> bool {
        let flight_bytes = self.snd_nxt.wrapping_sub(self.snd_una);
        let lengths = [flight_bytes, self.snd_wnd_bytes, self.max_window_bytes];
        let scaled = self.wscales.unwrap_or_default();
        lengths.iter().all(|bytes| *bytes <= TCP_WINDOW_BYTES_MAX)
            && self.rcv_wnd_bytes <= TCP_WINDOW_BYTES_MAX
            && self.mss_bytes >= MSS_BYTES_MIN
            && scaled.0.max(scaled.1) <= WSCALE_MAX
    }
}

impl Congestion {
    pub(super) fn encode(&self, to: &mut Vec<u8>) {
        put_bytes(to, self.name.as_bytes());
        let windows = [self.cwnd_segments, self.ssthresh_segments];
        for number in windows.into_iter().chain([self.srtt_us, self.rttvar_us]) {
            to.extend(number.to_le_bytes());
        }
        to.extend(self.pacing_bytes_per_s.to_le_bytes());
    }

    pub(super) fn parse(body: &mut Reader<'_>) -> Result<Congestion, Bad> {
        let congestion = Congestion {
            name: body.text(CLUSTER_CC_BYTES_MAX)?,
            cwnd_segments: body.u32()?,
            ssthresh_segments: body.u32()?,
            srtt_us: body.u32()?,
            rttvar_us: body.u32()?,
            pacing_bytes_per_s: body.u64()?,
        };
        let of_name = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
        let named = !congestion.name.is_empty() && congestion.name.bytes().all(of_name);
        if !named || congestion.cwnd_segments == 0 {
            return Err(Bad::Value);
        }
        Ok(congestion)
    }
}

impl Object {
    pub(super) fn encode(&self, to: &mut Vec<u8>) {
        put_bytes(to, self.name.as_bytes());
        to.extend(self.size_bytes.to_le_bytes());
        to.extend(self.mtime_ns.to_le_bytes());
        to.extend(self.from_bytes.to_le_bytes());
        to.extend(self.to_bytes.to_le_bytes());
    }

    pub(super) fn parse(body: &mut Reader<'_>) -> Result<Object, Bad> {
        let object = Object {
            name: body.text(CLUSTER_OBJECT_BYTES_MAX)?,
            size_bytes: body.u64()?,
            mtime_ns: body.u64()? as i64,
            from_bytes: body.u64()?,
            to_bytes: body.u64()?,
        };
        let ordered = object.from_bytes <= object.to_bytes && object.to_bytes <= object.size_bytes;
        if object.name.is_empty() || object.name.contains('\0') || !ordered {
            return Err(Bad::Value);
        }
        Ok(object)
    }
}

impl Request {
    fn encode(&self, to: &mut Vec<u8>) {
        self.object.encode(to);
        put_bytes(to, &self.head);
        to.extend(self.acked_bytes.to_le_bytes());
    }

    fn parse(body: &mut Reader<'_>) -> Result<Request, Bad> {
        let request = Request {
            object: Object::parse(body)?,
            head: body.bytes(CLUSTER_HEAD_BYTES_MAX)?.to_vec(),
            acked_bytes: body.u64()?,
        };
        let body_bytes = request.object.to_bytes - request.object.from_bytes;
        let len_bytes = body_bytes.saturating_add(request.head.len() as u64);
        if request.acked_bytes > len_bytes {
            return Err(Bad::Value);
        }
        Ok(request)
    }
}

impl Handoff {
    pub(super) fn encode(&self, to: &mut Vec<u8>) {
        self.tuple.encode(to);
        self.tcp.encode(to);
        self.congestion.encode(to);
        to.push(self.request.is_some().into());
        if let Some(request) = &self.request {
            request.encode(to);
        }
        put_bytes(to, &self.received);
        put_bytes(to, &self.unparsed);
    }

    pub(super) fn parse(body: &mut Reader<'_>) -> Result<Handoff, Bad> {
        let (tuple, tcp) = (Tuple::parse(body)?, Tcp::parse(body)?);
        let congestion = Congestion::parse(body)?;
        let request = if body.bool()? {
            Some(Request::parse(body)?)
        } else {
            None
        };
        let received = body.bytes(CLUSTER_QUEUE_BYTES_MAX)?;
        let unparsed = body.bytes(CLUSTER_QUEUE_BYTES_MAX - received.len())?;
        Ok(Handoff {
            tuple,
            tcp,
            congestion,
            request,
            received: received.to_vec(),
            unparsed: unparsed.to_vec(),
        })
    }
}
