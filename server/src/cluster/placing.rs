//! How a response was placed, for operators: by what a node has its bytes, and why.

use std::fmt::Write;

use ackpace_core::place::{Chosen, Load};
use ackpace_core::units::Bytes;

/// By what a node has the bytes of a response that it sends. The index of a count, too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum By {
    /// From its own files.
    #[default]
    Here,
    /// Another node's object that it fetched before.
    Kept,
    /// They pass through from another node.
    Relayed,
    /// It fetches them from another node, and keeps them.
    Fetched,
    /// The connection was to go to another node.
    HandedOver,
}

impl By {
    /// Each name at the index of its number. They are stable: labels of the metrics, and words of the access log.
    pub const NAMES: [&str; 5] = ["here", "kept", "relayed", "fetched", "handed_over"];

    pub fn name(self) -> &'static str {
        By::NAMES[self as usize]
    }
}

/// The last placement of a connection's response.
#[derive(Clone, Copy, Debug)]
pub struct Placing {
    pub by: By,
    pub len_bytes: u64,
    /// The choice; `None`: none was needed, or no node takes requests.
    pub chosen: Option<Chosen>,
    /// Its connection could have moved to the chosen node.
    pub may_move: bool,
}

impl Placing {
    /// Why, in words. `names`: of all nodes; `me`: of them this one.
    pub fn why(&self, names: &[String], me: usize) -> String {
        let Some(chosen) = &self.chosen else {
            return match self.by {
                By::Kept => "all of it was fetched from another node before".to_owned(),
                _ => "no node takes requests".to_owned(),
            };
        };
        let mut why = set(chosen, names);
        let name = |node: usize| names.get(node).map_or("?", String::as_str);
        let Load { processing, disk } = chosen.there;
        let _ = write!(
            why,
            "; {} was chosen, with {processing} responses and {disk} disk reads under way",
            name(chosen.node)
        );
        if chosen.node != me {
            let Load { processing, disk } = chosen.at;
            let _ = write!(why, " ({} has {processing} and {disk})", name(me));
        }
        let len = Bytes(self.len_bytes);
        match self.by {
            By::Relayed if self.may_move => {
                let _ = write!(why, "; {len} are too few to hand the connection over");
            }
            By::Relayed => why.push_str("; the connection could not move"),
            By::Fetched => why.push_str("; it is often requested here"),
            By::HandedOver => {
                let _ = write!(why, "; {len} are enough to hand the connection over");
            }
            By::Here if chosen.node != me => {
                why.push_str("; but served here: hand_off is off, the file has just changed, or the other node did not send it");
            }
            By::Here | By::Kept => {}
        }
        why
    }
}

/// Which nodes were known to have it.
fn set(chosen: &Chosen, names: &[String]) -> String {
    let has = |(node, _): &(usize, &String)| chosen.set.has(*node);
    let have = names.iter().enumerate().filter(has);
    let have: Vec<&str> = have.map(|(_, name)| name.as_str()).collect();
    match have[..] {
        [] => "no node was known to have it in memory".to_owned(),
        _ if !chosen.set.has(chosen.node) => {
            format!("in memory of {}, too busy or draining", have.join(", "))
        }
        _ => format!("in memory of {}", have.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ackpace_core::place::NodeSet;

    #[test]
    fn a_placement_is_told_with_its_set_and_its_loads() {
        let names = ["a", "b", "c"].map(str::to_owned);
        let load = |processing, disk| Load { processing, disk };
        let chosen = Chosen {
            node: 1,
            set: NodeSet::default().with(1).with(2),
            at: load(7, 0),
            there: load(3, 1),
        };
        let placing = |by, chosen| Placing {
            by,
            len_bytes: 9_000,
            chosen,
            may_move: true,
        };
        let why = |by, chosen| placing(by, Some(chosen)).why(&names, 0);
        let both = "b was chosen, with 3 responses and 1 disk reads under way (a has 7 and 0)";
        assert_eq!(
            why(By::Relayed, chosen),
            format!("in memory of b, c; {both}; 9.0 KB are too few to hand the connection over")
        );
        let nobody = Chosen {
            set: NodeSet::default(),
            ..chosen
        };
        let told = why(By::Fetched, nobody);
        let fetched = "; it is often requested here";
        assert_eq!(
            told,
            format!("no node was known to have it in memory; {both}{fetched}")
        );
        let shared = Chosen { node: 0, ..chosen };
        assert!(why(By::Here, shared).starts_with("in memory of b, c, too busy or draining"));
        let kept = placing(By::Kept, None).why(&names, 0);
        assert_eq!(kept, "all of it was fetched from another node before");
        let far = Chosen { node: 70, ..chosen };
        assert!(why(By::HandedOver, far).contains("? was chosen"));
    }
}
