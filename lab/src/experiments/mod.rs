//! The experiments: a function for each question, and its line in the table below.

mod cluster;
mod conventional;
mod disk;
mod documents;
mod films;
mod memory;
mod network;
mod nfs;
mod origin;
mod ssbt;

use crate::experiment::Experiment;
use crate::peers::Contender;

/// All experiments, in the order of `ackpace-lab list`.
pub fn all() -> Vec<Experiment> {
    let all: &[fn() -> Experiment] = &[
        memory::cached,
        memory::cold_stall,
        memory::small,
        network::paced,
        network::paced_cubic,
        network::self_paced_cached,
        network::believed,
        conventional::fig13,
        conventional::pending,
        films::few,
        conventional::disk_queue,
        conventional::locality,
        disk::fig14,
        disk::fig14_over,
        disk::fig14_order,
        disk::self_paced_cold,
        films::burst,
        films::reset,
        films::congested,
        disk::overload,
        disk::self_paced_overload,
        films::players,
        films::pairs,
        films::seek,
        films::crowd,
        films::sweep_once,
        conventional::profile,
        ssbt::fig17,
        ssbt::fig5,
        ssbt::fig13,
        ssbt::fig11,
        ssbt::fig15,
        ssbt::red,
        documents::fig18,
        documents::web,
        network::tune_nginx,
        origin::hits,
        origin::crowd,
        origin::miss,
        origin::by_length,
        origin::reset,
        origin::mix,
        nfs::folder,
        nfs::fig3,
        nfs::fig4,
        nfs::readers,
        nfs::write,
        cluster::relay,
        cluster::drain,
        cluster::moved,
        cluster::window,
        cluster::trace,
    ];
    all.iter().map(|experiment| experiment()).collect()
}

/// The experiments that `make bench` runs: the rows with targets that need nothing but root.
pub const BENCH: [&str; 2] = ["cached", "cold-stall"];

fn presets(names: &[&str]) -> Vec<Contender> {
    names.iter().map(|name| Contender::preset(name)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::Over;
    use crate::metrics;
    use crate::sweep::expand;
    use crate::workloads::Workload;

    #[test]
    fn names_metrics_axes_and_contenders_of_all_experiments_exist() {
        let all = all();
        for experiment in &all {
            let name = experiment.name;
            let same = all.iter().filter(|other| other.name == name);
            assert_eq!(same.count(), 1, "{name} is there twice");
            let contenders = &experiment.contenders;
            let takes_part = |peer: &str| contenders.iter().any(|who| who.name == peer);
            let is_axis = |name: &str| experiment.sweep.iter().any(|axis| axis.name == name);
            assert!(experiment.sweep.len() <= 2, "{name}");
            for who in contenders {
                let parts = who.name.contains(','); // --contenders parts there
                assert!(!parts, "{name}: {}", who.name);
            }
            assert!(contenders.iter().any(|who| experiment.is_subject(who)));
            for judge in experiment.judges() {
                let metric = judge.metric;
                assert!(metrics::find(metric).is_some(), "{name}: {metric}");
                for peer in judge.against {
                    assert!(takes_part(peer), "{name}: {peer} takes no part");
                }
                let itself = judge.over_itself.map(|(axis, _)| axis);
                for axis in judge.at.iter().map(|(axis, _)| *axis).chain(itself) {
                    assert!(is_axis(axis), "{name}: no axis {axis}");
                }
            }
            for figure in &experiment.figures {
                assert!(metrics::find(figure.metric).is_some(), "{name}");
                if let Over::Classes(_, _, peer) = figure.over {
                    assert!(takes_part(peer), "{name}: {peer} takes no part");
                }
            }
        }
        assert!(
            BENCH
                .iter()
                .all(|name| all.iter().any(|one| one.name == *name))
        );
    }

    #[test]
    fn every_point_of_every_experiment_has_a_scenario_and_settings_without_open_places() {
        for experiment in all() {
            let name = experiment.name;
            let classes = experiment
                .figures
                .iter()
                .flat_map(|figure| match figure.over {
                    Over::SecondsByClass(classes) => classes.to_vec(),
                    Over::Classes(classes, ..) => classes.iter().map(|(name, _)| *name).collect(),
                    Over::Axis | Over::Seconds => Vec::new(),
                });
            let classes: Vec<&str> = classes.collect();
            for point in [false, true]
                .map(|quick| expand(&experiment.sweep, quick))
                .concat()
            {
                let scenario = (experiment.scenario)(&point);
                assert!(scenario.workload.connections() > 0, "{name}");
                if let Workload::Swarm(swarm) = &scenario.workload {
                    let mut there = swarm.clients.classes.iter();
                    assert!(there.all(|class| class.sources().is_ok()), "{name}");
                    for class in &classes {
                        let mut there = swarm.clients.classes.iter();
                        assert!(there.any(|one| one.name == *class), "{name}: no {class}");
                    }
                }
                for contender in &experiment.contenders {
                    let at = contender.at(&point);
                    let open = at.options.iter().find(|option| option.contains('{'));
                    assert_eq!(open, None, "{name}: {}", contender.name);
                }
            }
        }
    }
}
