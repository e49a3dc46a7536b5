//! What is said on a stream, from HELLO to its end, and what becomes of the nodes by it.

use std::sync::atomic::Ordering::{Relaxed, Release};

use ackpace_core::place::Standing;
use ackpace_core::units::Instant;
use ackpace_wire::cluster::{Frame, Message, VERSION};

use super::key::PublicKey;
use super::stream::Broken;
use super::thread::{Open, Thread, about_none};

/// What another node says of itself in HELLO.
struct Hello {
    name: String,
    boot_nonce: u32,
    versions: [u16; 2],
    relay_port: u16,
}

impl Thread {
    /// The handshake is over: the key tells who it is.
    pub fn greet(&mut self, open: &mut Open, key: &PublicKey) -> Result<(), Broken> {
        let (me, names) = (self.cluster.me, self.cluster.nodes());
        let places = self.places.iter().enumerate();
        let mut others = places.filter(|(node, _)| *node != me);
        let Some((node, _)) = others.find(|(_, other)| other.key == Some(*key)) else {
            let why = "no node that is known here has its key: look at --peer or etcd".to_owned();
            return Err(Broken::Wrong(why)); // TLS takes no other
        };
        if let Some(wanted) = open.node.filter(|wanted| *wanted != node) {
            let (wanted, node) = (&names[wanted], &names[node]);
            let why = format!("it has the key of {node}, not that of {wanted}");
            return Err(Broken::Wrong(why));
        }
        (open.node, open.is_greeted) = (Some(node), true);
        open.stream.push(&about_none(Message::Hello {
            node: self.cluster.name().to_owned(),
            boot_nonce: self.cluster.boot_nonce,
            version_min: VERSION,
            version_max: VERSION,
            relay_port: self.cluster.relay_addr().port(),
        }));
        self.cluster.tally.frames[0].fetch_add(1, Relaxed);
        Ok(())
    }

    /// A frame came.
    pub fn frame(
        &mut self,
        id: u64,
        open: &mut Open,
        frame: Frame,
        now: Instant,
    ) -> Result<(), Broken> {
        let wrong = |why: &str| Err(Broken::Wrong(why.to_owned()));
        let Some(node) = open.node else {
            return wrong("it has shown no key");
        };
        if !open.stands {
            let Message::Hello {
                node: name,
                boot_nonce,
                version_min,
                version_max,
                relay_port,
            } = frame.message
            else {
                return wrong("its first message is not HELLO");
            };
            let hello = Hello {
                name,
                boot_nonce,
                versions: [version_min, version_max],
                relay_port,
            };
            self.welcome(id, node, &hello, now)?;
            open.stands = true;
            open.stream.push(&about_none(Message::Load((self.busy)())));
            self.cluster.tally.frames[0].fetch_add(1, Relaxed);
            return Ok(());
        }
        self.members[node].heard(now);
        match frame.message {
            Message::Hello { .. } => return wrong("it sent HELLO twice"),
            Message::Ping => {}
            Message::Load(load) => self.cluster.told(node, load),
            Message::Came(keys) => {
                let place = &mut self.cluster.known().place;
                keys.iter().for_each(|key| place.came(node, *key));
            }
            Message::Drain { on } => self.cluster.drain(on),
            _ => {
                let frame = self.of_wire(frame);
                self.flows.on_flow(node, frame, now);
            }
        }
        Ok(())
    }

    /// A node has said HELLO: from now on it is one of those that serve.
    fn welcome(&mut self, id: u64, node: usize, hello: &Hello, now: Instant) -> Result<(), Broken> {
        let name = self.cluster.name_of(node);
        if hello.name != name {
            let why = format!("it calls itself {} but has the key of {name}", hello.name);
            return Err(Broken::Wrong(why));
        }
        let [least, most] = hello.versions;
        if !(least..=most).contains(&VERSION) {
            return Err(Broken::Wrong(format!(
                "it speaks versions {least} to {most} of the protocol, and this node {VERSION}: run one release"
            )));
        }
        let before = self.cluster.known().seen[node];
        let is_another = before.boot_nonce != 0 && before.boot_nonce != hello.boot_nonce;
        if let Some(old) = self.standing[node] {
            if is_another {
                let why = format!("another running server is also called {name}");
                return Err(Broken::Wrong(why));
            }
            self.standing[node] = None;
            self.open.remove(&old); // the same process opened it, and has lost it
        }
        if is_another && !before.is_dead {
            self.flows.died(node, now);
        }
        self.standing[node] = Some(id);
        self.members[node].opened(now);
        {
            let mut known = self.cluster.known();
            let seen = &mut known.seen[node];
            (seen.boot_nonce, seen.version) = (hello.boot_nonce, most.min(VERSION));
            seen.is_dead = false;
        }
        self.cluster.stand(node, Standing::Up);
        self.cluster.relay_ports[node].store(hello.relay_port, Release);
        tracing::info!("cluster: {name} is up");
        Ok(())
    }

    /// Ends a stream.
    pub fn cut(&mut self, id: u64, broken: Broken, now: Instant) {
        let Some(open) = self.open.remove(&id) else {
            return;
        };
        let Some(node) = open.node else {
            if let Broken::Wrong(why) = broken {
                self.refused(None, &why, now);
            }
            return;
        };
        if self.standing[node] != Some(id) {
            return match open.is_ours {
                true => self.not_opened(node, broken, now),
                false => self.tell_wrong(node, &broken, now),
            };
        }
        self.standing[node] = None;
        self.cluster.relay_ports[node].store(0, Release);
        let was_draining = self.cluster.known().seen[node].standing == Standing::Draining;
        self.cluster.stand(node, Standing::Down);
        self.cluster.tally.streams[0].fetch_add(1, Relaxed);
        self.members[node].broke(now);
        self.flows.unreachable(node, now);
        let name = self.cluster.name_of(node);
        match &broken {
            // It was emptied first, as a node is that stops in order.
            Broken::Ended if was_draining => tracing::info!("cluster: {name} has ended"),
            Broken::Ended => {
                tracing::warn!("cluster: {name} can't be reached: it closed the stream")
            }
            Broken::Closed(why) => tracing::warn!("cluster: {name} can't be reached: {why}"),
            _ => tracing::warn!("cluster: {name} can't be reached"),
        }
        self.tell_wrong(node, &broken, now);
    }

    /// A stream of ours could not be opened.
    pub fn not_opened(&mut self, node: usize, broken: Broken, now: Instant) {
        if !self.members[node].stands() {
            self.members[node].broke(now);
        }
        let is_dead = match broken {
            Broken::Refused => true,
            Broken::Taken | Broken::Wrong(_) => false, // somebody is there
            Broken::Ended | Broken::Closed(_) => return,
        };
        let was_dead = std::mem::replace(&mut self.cluster.known().seen[node].is_dead, is_dead);
        if is_dead && !was_dead {
            self.flows.died(node, now);
        }
        self.tell_wrong(node, &broken, now);
    }

    fn tell_wrong(&mut self, node: usize, broken: &Broken, now: Instant) {
        if let Broken::Wrong(why) = broken {
            self.refused(Some(node), why, now);
        }
    }
}
