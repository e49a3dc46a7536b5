//! What the options of a cluster say together.

use crate::cluster::id_of;
use crate::limits::PEERS_MAX;
use crate::options::{ClusterAt, HandOff, Listen, MetricsAt, Peer, ServeOptions, shown_key};

/// What is wrong with them: the key of the option that is to be mended, and why.
pub fn wrong(options: &ServeOptions) -> Option<(&'static str, String)> {
    let cluster = &options.cluster;
    let needed = cluster.needed();
    let lacks: Vec<&str> = needed.iter().filter(|(_, has)| !has).map(|n| n.0).collect();
    if lacks.len() == needed.len() {
        let is_idle = cluster.hand_off != HandOff::Auto;
        let text = "there is no cluster: give node, peer (or cluster_etcd), cluster_listen and cluster_key, too";
        return is_idle.then(|| ("hand_off", text.to_owned()));
    }
    if !lacks.is_empty() {
        let lacks = lacks.join(", ").replace("peer", "peer (or cluster_etcd)");
        let text = format!("a node of a cluster also needs {lacks}");
        let given = needed.iter().find(|(_, has)| *has);
        return given.map(|(given, _)| match *given {
            "peer" if cluster.peer.is_empty() => ("cluster_etcd", text),
            given => (given, text),
        });
    }
    if options.has_origin() {
        let text = "a gateway can't be a node of a cluster in this version: serve a directory";
        return Some(("node", text.to_owned()));
    }
    peers(&cluster.node, &cluster.peer)
        .map(|text| ("peer", text))
        .or_else(|| ports(options))
}

fn peers(node: &str, peers: &[Peer]) -> Option<String> {
    if peers.len() > PEERS_MAX {
        let count = peers.len();
        return Some(format!("{count} peers are too many: {PEERS_MAX} at most"));
    }
    for (at, peer) in peers.iter().enumerate() {
        let Peer { name, addr, key } = peer;
        if name == node {
            return Some(format!(
                "{name} is this node itself: name the others only, and each by its own name"
            ));
        }
        let earlier = &peers[..at];
        let mut before = earlier.iter().map(|other| &*other.name).chain([node]);
        if let Some(other) = before.find(|other| *other != name && id_of(other) == id_of(name)) {
            return Some(format!(
                "{name} and {other} can't be in one cluster, since both names hash to one number: rename one of them"
            ));
        }
        if earlier.iter().any(|other| other.name == *name) {
            return Some(format!("{name} is there twice"));
        }
        if let Some(other) = earlier.iter().find(|other| other.addr == *addr) {
            return Some(format!(
                "{} and {name} have one address, {addr}",
                other.name
            ));
        }
        if let Some(other) = earlier.iter().find(|other| other.key == *key) {
            let (other, key) = (&other.name, shown_key(key));
            return Some(format!(
                "{other} and {name} have one key, {key}: each node makes its own"
            ));
        }
    }
    None
}

/// The addresses of the node itself are taken by nobody else.
fn ports(options: &ServeOptions) -> Option<(&'static str, String)> {
    let ClusterAt::Tcp(addr) = options.cluster.cluster_listen else {
        return None;
    };
    if let Some(peer) = options.cluster.peer.iter().find(|peer| peer.addr == addr) {
        let text = format!("{addr} is the address of the peer {}", peer.name);
        return Some(("cluster_listen", text));
    }
    let mut next = addr;
    next.set_port(addr.port() + 1); // the option takes no port that has none after it
    for own in [addr, next].map(Listen::at) {
        let takes = |other: &&Listen| other.takes(&own) || own.takes(other);
        if let Some(listen) = options.listen.iter().find(takes) {
            let text = format!("{own} is taken by listen = {listen}: choose another port");
            return Some(("cluster_listen", text));
        }
        if let MetricsAt::Tcp(metrics) = &options.metrics {
            if takes(&metrics) {
                let text = format!("{own} is taken by metrics = {metrics}: choose another port");
                return Some(("cluster_listen", text));
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use clap::{Args, Command, FromArgMatches};

    use super::*;

    fn told(args: &[String]) -> Option<String> {
        let command = ServeOptions::augment_args(Command::new("x").no_binary_name(true));
        let matches = command.try_get_matches_from(args).expect("good values");
        let options = ServeOptions::from_arg_matches(&matches).expect("good values");
        wrong(&options).map(|(key, text)| format!("{key}: {text}"))
    }

    fn with(more: &[String]) -> Option<String> {
        let args = [
            "--node=a",
            "--cluster-listen=192.0.2.1:7800",
            "--cluster-key=k",
        ];
        told(
            &args
                .iter()
                .map(|arg| (*arg).to_owned())
                .chain(more.iter().cloned())
                .collect::<Vec<_>>(),
        )
    }

    fn peer(name: &str, nth: u8) -> String {
        let key = shown_key(&[nth; 32]);
        format!("--peer={name}=192.0.2.{nth}:7800,{key}")
    }

    #[test]
    fn all_or_none_of_the_options_are_given() {
        assert_eq!(told(&[]), None);
        assert_eq!(with(&[peer("b", 2), peer("c", 3)]), None);
        let lacks = with(&[]).expect("no peer");
        assert_eq!(
            lacks,
            "node: a node of a cluster also needs peer (or cluster_etcd)"
        );
        let lacks = told(&[peer("b", 2)]).expect("no name");
        assert!(
            lacks.ends_with("also needs node, cluster_listen, cluster_key"),
            "{lacks}"
        );
        let idle = told(&["--hand-off=relay".to_owned()]).expect("no cluster");
        assert!(idle.starts_with("hand_off: there is no cluster"), "{idle}");
    }

    #[test]
    fn nodes_differ_in_name_address_and_key() {
        let key = |nth: u8| shown_key(&[nth; 32]);
        for (second, why) in [
            (peer("a", 3), "peer: a is this node itself"),
            (peer("b", 3), "peer: b is there twice"),
            (
                format!("--peer=c=192.0.2.2:7800,{}", key(3)),
                "peer: b and c have one address",
            ),
            (
                format!("--peer=c=192.0.2.3:7800,{}", key(2)),
                "peer: b and c have one key",
            ),
            (
                format!("--peer=c=192.0.2.1:7800,{}", key(3)),
                "cluster_listen: 192.0.2.1:7800 is the address",
            ),
            (
                "--listen=192.0.2.1:7801".to_owned(),
                "cluster_listen: 192.0.2.1:7801 is taken by listen",
            ),
            (
                "--metrics=:7800".to_owned(),
                "cluster_listen: 192.0.2.1:7800 is taken by metrics",
            ),
            (
                "--origin=http://192.0.2.9/".to_owned(),
                "node: a gateway can't be a node",
            ),
        ] {
            let told = with(&[peer("b", 2), second]).expect(why);
            assert!(told.starts_with(why), "{told}");
        }
    }

    #[test]
    fn a_cluster_has_as_many_nodes_as_there_are_slots_for() {
        let peers = |many: u8| (2..2 + many).map(|nth| peer(&format!("n{nth}"), nth));
        assert_eq!(with(&peers(12).collect::<Vec<_>>()), None);
        let told = with(&peers(13).collect::<Vec<_>>()).expect("too many");
        assert_eq!(told, "peer: 13 peers are too many: 12 at most");
    }
}
