//! The load average of a sandbox. The kernel has one for the whole host only, and samples it every five seconds.
//!
//! Here nothing is sampled. A cgroup counts the processor time that its programs have used, and the time for which their quota made them
//! wait. The growth of both over a time is the average number of processors that they used or wanted in it, and that is what a load
//! average averages. So it is computed when somebody reads it, and costs nothing until then.

use std::time::Duration;

/// The times over which the three numbers of a load average fade.
const FADE_SECONDS: [f64; 3] = [60.0, 300.0, 900.0];

#[derive(Debug, Clone, Copy, Default)]
pub struct LoadAverage {
    averages: [f64; 3],
    /// When it was updated last, as the time since the sandbox began.
    at: Duration,
    busy_usec: u64,
}

impl LoadAverage {
    /// Takes the time for which processors were used or wanted until now, and returns the averages.
    pub fn update(&mut self, now: Duration, busy_usec: u64) -> [f64; 3] {
        let seconds = now.saturating_sub(self.at).as_secs_f64();
        if seconds > 0.0 {
            let grown = Duration::from_micros(busy_usec.saturating_sub(self.busy_usec)).as_secs_f64();
            for (average, fade) in self.averages.iter_mut().zip(FADE_SECONDS) {
                let kept = (-seconds / fade).exp();
                *average = *average * kept + grown / seconds * (1.0 - kept);
            }
            (self.at, self.busy_usec) = (now, busy_usec);
        }
        self.averages
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    #[test]
    fn a_load_rises_towards_what_runs_and_fades_when_nothing_does() {
        let mut load = LoadAverage::default();
        let [one, five, fifteen] = load.update(MINUTE, 2 * 60_000_000);
        assert!((one - 2.0 * (1.0 - (-1.0_f64).exp())).abs() < 1e-9, "{one}");
        assert!(one > five && five > fifteen && fifteen > 0.0);
        let [later, _, _] = load.update(2 * MINUTE, 2 * 60_000_000);
        assert!((later - one * (-1.0_f64).exp()).abs() < 1e-9, "{later}");
    }

    #[test]
    fn how_often_it_is_read_changes_nothing() {
        let (mut often, mut once) = (LoadAverage::default(), LoadAverage::default());
        let mut last = [0.0; 3];
        for second in 1..=600 {
            last = often.update(Duration::from_secs(second), second * 1_500_000);
        }
        let at_once = once.update(Duration::from_secs(600), 600 * 1_500_000);
        assert!(last.iter().zip(at_once).all(|(a, b)| (a - b).abs() < 1e-9), "{last:?} {at_once:?}");
    }

    #[test]
    fn a_count_that_goes_back_is_no_load() {
        let mut load = LoadAverage::default();
        load.update(MINUTE, 1_000);
        assert!(load.update(2 * MINUTE, 0).iter().all(|average| (0.0..1.0).contains(average)));
    }
}
