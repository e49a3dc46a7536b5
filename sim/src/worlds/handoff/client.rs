//! A client: requests on one connection, the bytes of their responses in order, and data above holes.

use std::collections::BTreeSet;

use super::parts::{Event, Packet, Segment, content};
use super::{MS, Run};
use crate::worlds::dice::Dice;

/// How often a client repeats what is not acknowledged.
const REPEATS_US: u64 = 60 * MS;

#[derive(Clone, Debug)]
pub(super) struct Client {
    /// Where the response to each request ends in the stream.
    ends_at: Vec<u64>,
    /// Requests at a time.
    depth: u64,
    /// Requests that it sent.
    sent: u64,
    /// Requests that the server acknowledged.
    acked: u64,
    rcv_nxt: u64,
    above: BTreeSet<u64>,
    fin_acked: bool,
    /// It got RST.
    pub reset: bool,
    /// A node that had its connection has died.
    pub lost: bool,
    /// What the flow switch knows: where packets go, by which epoch, and what the client has said.
    pub switch: Switch,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Switch {
    pub node: usize,
    pub epoch: u32,
    pub ack: u64,
    /// Requests that the client has sent. A guest may have acknowledged all of them.
    pub sent: u64,
}

impl Client {
    pub fn draw(dice: &mut Dice, home: usize) -> Client {
        let mut end = 0;
        let ends_at = (0..1 + dice.below(4)).map(|_| {
            end += dice.between(1, 400);
            end
        });
        Client {
            ends_at: ends_at.collect(),
            depth: 1 + dice.below(2),
            sent: 0,
            acked: 0,
            rcv_nxt: 0,
            above: BTreeSet::new(),
            fin_acked: false,
            reset: false,
            lost: false,
            switch: Switch {
                node: home,
                epoch: 1,
                ack: 0,
                sent: 0,
            },
        }
    }

    /// The end of the stream, once so many requests are known.
    pub fn available(&self, requests: u64) -> u64 {
        let last = requests.checked_sub(1);
        last.map_or(0, |last| self.ends_at[last as usize])
    }

    pub fn is_served(&self) -> bool {
        self.ends_at.last() == Some(&self.rcv_nxt)
    }

    pub fn fin_is_acked(&mut self) {
        self.fin_acked = true;
    }

    fn packet(&self, conn: usize, rst: bool) -> Packet {
        Packet {
            conn,
            from: self.acked,
            to: self.sent,
            ack: self.rcv_nxt,
            fin: self.is_served(),
            rst,
            hops: 0,
        }
    }

    /// Requests may be sent as earlier ones are answered.
    fn ask(&mut self) {
        let answered = self.ends_at.iter().filter(|end| **end <= self.rcv_nxt);
        let may = answered.count() as u64 + self.depth;
        self.sent = self.sent.max(may.min(self.ends_at.len() as u64));
    }
}

impl Run {
    /// The client repeats itself until it is done.
    pub(super) fn client_turn(&mut self, conn: usize) {
        let client = &mut self.clients[conn];
        client.ask();
        if client.reset || client.fin_acked {
            return;
        }
        let packet = client.packet(conn, false);
        self.client_sends(packet);
        let next = self.now_us + REPEATS_US;
        self.network.at(next, Event::Client { conn });
    }

    fn client_sends(&mut self, packet: Packet) {
        if !self.dice.once_in(self.loss) {
            let at = self.now_us + self.network.path_us(&mut self.dice);
            self.network.at(at, Event::Packet(packet));
        }
    }

    /// A segment reaches the client.
    pub(super) fn segment(&mut self, segment: Segment) {
        let conn = segment.conn;
        let client = &mut self.clients[conn];
        if segment.rst {
            client.reset |= !client.is_served();
            client.fin_acked = true;
            return;
        }
        if client.reset || client.fin_acked {
            let packet = client.packet(conn, true);
            return self.client_sends(packet);
        }
        client.acked = client.acked.max(segment.acked);
        if let Some(content_got) = segment.content {
            if content_got != content(conn, segment.at) {
                self.broken_law = Some(format!("wrong byte at {} of {conn}", segment.at));
            }
            client.above.insert(segment.at);
            while client.above.remove(&client.rcv_nxt) {
                client.rcv_nxt += 1;
            }
            let rcv_nxt = client.rcv_nxt;
            client.above.retain(|at| *at > rcv_nxt);
        }
        client.ask();
        let packet = client.packet(conn, false);
        self.client_sends(packet);
    }
}
