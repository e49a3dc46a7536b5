//! The machine of a run. Ratios can be compared between machines; absolute figures cannot.

/// The facts that a reader needs to judge figures. No names of hosts or people.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Machine {
    /// Kernel release and version.
    pub kernel: String,
    /// Distribution.
    pub distribution: String,
    /// Model of the first CPU.
    pub cpu: String,
    /// Number of cores that we may use.
    pub cores: usize,
    /// Frequency governor, if the machine reports one.
    pub governor: Option<String>,
    /// Memory in bytes.
    pub memory_bytes: u64,
    /// Load averages at the start: above 0, other processes were active.
    pub load_average: String,
    /// Congestion control of the connections, set and verified.
    pub congestion_control: &'static str,
}

/// Collects the facts; one that cannot be read is empty.
pub fn machine() -> Machine {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let uname = rustix::system::uname();
    Machine {
        kernel: format!(
            "{} {} {}",
            uname.release().to_string_lossy(),
            uname.version().to_string_lossy(),
            uname.machine().to_string_lossy()
        ),
        distribution: value(&read("/etc/os-release"), "PRETTY_NAME", '=').replace('"', ""),
        cpu: value(&read("/proc/cpuinfo"), "model name", ':'),
        cores: std::thread::available_parallelism().map_or(0, usize::from),
        governor: std::fs::read_to_string("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")
            .ok()
            .map(|text| text.trim().to_owned()),
        memory_bytes: value(&read("/proc/meminfo"), "MemTotal", ':')
            .trim_end_matches(" kB")
            .parse::<u64>()
            .map_or(0, |kb| kb * 1024),
        load_average: read("/proc/loadavg").trim().to_owned(),
        congestion_control: crate::environment::CONGESTION_CONTROL,
    }
}

/// Value of the first line `name <separator> value`.
fn value(text: &str, name: &str, separator: char) -> String {
    text.lines()
        .filter_map(|line| line.split_once(separator))
        .find(|(key, _)| key.trim() == name)
        .map(|(_, value)| value.trim().to_owned())
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_found_by_name() {
        let text = "MemTotal:       24684204 kB\nmodel name\t: Some CPU @ 3 GHz\n";
        assert_eq!(value(text, "MemTotal", ':'), "24684204 kB");
        assert_eq!(value(text, "model name", ':'), "Some CPU @ 3 GHz");
        assert_eq!(value(text, "missing", ':'), "");
    }
}
