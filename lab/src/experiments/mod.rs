//! The experiments, one file for each question. A new one needs a file and a line below.

mod array;
mod believed;
mod burst;
mod cached;
mod cold_disk;
mod cold_stall;
mod congested;
mod crowd;
mod disk_queue;
mod few;
mod fig13;
mod fig14;
mod idle;
mod listing;
mod locality;
mod overload;
mod paced;
mod pairs;
mod pending;
mod players;
mod profile;
mod reset;
mod seek;
mod self_paced;
mod self_paced_cold;
mod send_memory;
mod send_memory_cgroup;
mod sendfile;
mod slow_disk;
mod small;
mod speedup;
mod ssbt_fig11;
mod ssbt_fig18;
mod ssbt_red;
mod ssbt_web;
mod sweep_once;
mod tune;

use crate::experiment::Experiment;

/// All experiments, in the order of `ackpace-lab list`.
pub fn all() -> Vec<Experiment> {
    vec![
        cached::experiment(),
        cold_stall::experiment(),
        listing::experiment(),
        small::experiment(),
        idle::experiment(),
        paced::experiment(),
        paced::cubic(),
        paced::visited(),
        paced::halting(),
        self_paced::cached(),
        believed::experiment(),
        speedup::experiment(),
        fig13::experiment(),
        cold_disk::experiment(),
        few::experiment(),
        pending::experiment(),
        disk_queue::experiment(),
        locality::experiment(),
        fig14::experiment(),
        fig14::over(),
        fig14::order(),
        self_paced_cold::experiment(),
        burst::experiment(),
        reset::experiment(),
        congested::experiment(),
        overload::experiment(),
        overload::self_paced(),
        players::experiment(),
        pairs::experiment(),
        seek::experiment(),
        crowd::experiment(),
        sweep_once::experiment(),
        array::experiment(),
        profile::experiment(),
        send_memory::fig17(),
        send_memory::fig5(),
        send_memory::fig13(),
        ssbt_fig11::experiment(),
        ssbt_red::fig15(),
        ssbt_red::rates(),
        ssbt_fig18::experiment(),
        ssbt_web::experiment(),
        send_memory::pools(),
        send_memory::traps(),
        send_memory_cgroup::experiment(),
        sendfile::experiment(),
        tune::nginx(),
        tune::apache(),
    ]
}

/// Names of sets of experiments, and their purpose.
pub const SETS: &[(&str, &[&str], &str)] = &[(
    "bench",
    &["cached", "cold-stall", "listing"],
    "what `make bench` runs: the rows with targets that need nothing but root",
)];

#[cfg(test)]
mod tests {
    use super::*;
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
            let axis = |wanted: &str| experiment.sweep.iter().any(|axis| axis.name == wanted);
            for figure in &experiment.figures {
                assert!(
                    metrics::find(figure.metric).is_some(),
                    "{name}: {}",
                    figure.metric
                );
                let bare = experiment.sweep.iter().filter(|axis| {
                    ![Some(figure.over), figure.lines, figure.panels].contains(&Some(axis.name))
                });
                assert_eq!(
                    bare.count(),
                    0,
                    "{name}: an axis that {} leaves out",
                    figure.title
                );
                let axes = [Some(figure.over), figure.lines, figure.panels];
                if let Some(peer) = figure.ratio_to {
                    let known = experiment.contenders.iter().any(|who| who.name == peer);
                    assert!(known, "{name}: {peer} takes no part");
                }
                for wanted in axes.into_iter().flatten().filter(|axis| !axis.is_empty()) {
                    assert!(axis(wanted), "{name}: no axis {wanted}");
                }
            }
            for who in &experiment.contenders {
                assert!(
                    !who.name.contains(','),
                    "--contenders parts at commas: {}",
                    who.name
                );
            }
            for judge in &experiment.judged {
                assert!(
                    metrics::find(judge.metric).is_some(),
                    "{name}: {}",
                    judge.metric
                );
                for peer in judge.against {
                    let known = experiment.contenders.iter().any(|who| who.name == *peer);
                    assert!(known, "{name}: {peer} takes no part");
                }
            }
            assert!(
                experiment
                    .contenders
                    .iter()
                    .any(|who| experiment.is_subject(who))
            );
        }
        for (set, members, _) in SETS {
            for member in *members {
                assert!(
                    all.iter().any(|experiment| experiment.name == *member),
                    "{set}: {member}"
                );
            }
        }
    }

    /// The classes in figures of an experiment.
    fn classes_of(experiment: &Experiment) -> Vec<&'static str> {
        let classes = (experiment.figures.iter()).filter_map(|figure| figure.classes.as_ref());
        classes
            .flat_map(|classes| classes.values.iter().map(|(name, _)| *name))
            .collect()
    }

    #[test]
    fn every_point_of_every_experiment_has_a_scenario_and_settings_without_open_places() {
        for experiment in all() {
            for quick in [false, true] {
                for point in expand(&experiment.sweep, quick) {
                    let scenario = (experiment.scenario)(&point);
                    assert!(scenario.workload.connections() > 0, "{}", experiment.name);
                    if let Workload::Swarm(swarm) = &scenario.workload {
                        assert_eq!(swarm.clients.check(), Ok(()), "{}", experiment.name);
                        for class in classes_of(&experiment) {
                            let mut there = swarm.clients.classes.iter();
                            let found = there.any(|one| one.name == class);
                            assert!(found, "{}: no class {class}", experiment.name);
                        }
                    }
                    for contender in &experiment.contenders {
                        let at = contender.at(&point);
                        let open = at.options.iter().find(|option| option.contains('{'));
                        assert_eq!(open, None, "{}: {}", experiment.name, contender.name);
                    }
                }
            }
        }
    }
}
