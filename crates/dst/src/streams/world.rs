//! One seed from beginning to end: trouble, healing, and what must be so after it.

use std::time::Duration;

use headstart_core::{Nanos, ReplicaId, Rng};
use headstart_router::index::{ASSUMPTION_TTL, DOUBT_TTL, IndexDump, Update};
use headstart_router::stream::{STALE_BATCHES_MAX, StreamStatus};
use headstart_router::{PrefixIndex, RunIndex};

use super::catalog::{Catalog, MODEL};
use super::checks;
use super::scenario::Scenario;
use super::station::{Commons, ProcessEnd, Station};
use super::tally::CoverageTally;
use super::texts::Texts;

/// Time in which a healed stream must have settled: a look after silence, the longest pause
/// between replays, and what they take.
const SETTLE_TIME: Duration = Duration::from_secs(45);

/// Steps of each engine after healing, after a clear and after a restart.
const STEPS_AFTER: usize = 3;

/// Steps of each engine after healing without replays, or with replays that lack the requested
/// batches: where an engine's clock was set back, some batches are dropped before that is believed.
const STEPS_HEALED: usize = STALE_BATCHES_MAX as usize + 2;

/// Comparisons per full comparison, which costs more than all else.
const CHECK_EVERY: usize = 16;

/// Most turns of the loop between two phases. A stream that never comes to rest is an error.
const TURNS_MAX: usize = 100_000;

/// All stations and what they share.
pub(super) struct StreamWorld {
    commons: Commons,
    stations: Vec<Station>,
    num_steps: usize,
    restore: Option<(usize, usize)>,
}

impl StreamWorld {
    pub(super) fn new(seed: u64, log: Option<Vec<String>>) -> Self {
        let mut rng = Rng::new(seed);
        let scenario = Scenario::draw(&mut rng);
        let mut commons = Commons {
            rng,
            now: Nanos(1),
            catalog: Catalog::default(),
            texts: Texts::default(),
            index: RunIndex::new(MODEL),
            tally: CoverageTally::default(),
            log,
            hash_seed: scenario.hash_seed,
            pace: scenario.pace,
        };
        let specs = (0..).map(ReplicaId).zip(scenario.stations);
        let stations = specs.map(|(replica, spec)| {
            commons.note(|| format!("{replica:?} is {spec:#?}"));
            Station::new(replica, spec, &mut commons)
        });
        let stations = stations.collect();
        Self { commons, stations, num_steps: scenario.num_steps, restore: scenario.restore }
    }

    /// Returns the log and the counts.
    pub(super) fn into_notes(self) -> (Vec<String>, CoverageTally) {
        (self.commons.log.unwrap_or_default(), self.commons.tally)
    }

    pub(super) fn run(&mut self) -> Result<(), String> {
        if let Some((dumped, restored)) = self.restore {
            self.go_through(dumped)?;
            let dump = self.commons.index.dump(self.commons.now);
            self.go_through(restored - dumped)?;
            self.restore(&dump)?;
            // Steps that were taken already count, so a restored run is as long as any other.
            self.num_steps -= restored / self.stations.len();
        }
        self.go_through(self.num_steps * self.stations.len())?;
        self.heal()?;
        self.clear()?;
        self.restart()?;
        self.forget()
    }

    /// Lets faults happen for `num_steps` steps of all engines together.
    fn go_through(&mut self, num_steps: usize) -> Result<(), String> {
        let mut done = 0;
        while done < num_steps {
            let next = self.next();
            let stations = self.stations.iter();
            let steps = stations.filter(|station| station.next_step <= next);
            done += steps.count();
            self.advance(next)?;
        }
        Ok(())
    }

    /// Replaces the followers of all engines by new ones, with the dumped index.
    fn restore(&mut self, dump: &IndexDump) -> Result<(), String> {
        self.commons.note(|| "every replica is followed again".to_owned());
        self.commons.index = RunIndex::new(MODEL);
        for station in &mut self.stations {
            station.follow_anew(&mut self.commons);
        }
        let Commons { index, now, .. } = &self.commons;
        let restored = index.restore(dump, *now);
        let restored = restored.map_err(|error| error.to_string())?;
        self.commons.tally.restores += 1;
        self.commons.tally.restored += restored as u64;
        self.compare_all()
    }

    /// When anything happens next.
    fn next(&self) -> Nanos {
        let times = self.stations.iter().map(Station::next);
        times.fold(Nanos(u64::MAX), Nanos::min).max(self.commons.now)
    }

    /// Advances to `next`, and compares the stations with news.
    fn advance(&mut self, next: Nanos) -> Result<(), String> {
        self.commons.now = next;
        for at in 0..self.stations.len() {
            if self.stations[at].advance(&mut self.commons)? {
                self.compare(at)?;
            }
        }
        Ok(())
    }

    /// Compares a station, and now and then everything: what one replica reports must not change
    /// what is known of another.
    fn compare(&mut self, at: usize) -> Result<(), String> {
        if self.commons.rng.below(CHECK_EVERY) == 0 {
            self.compare_all()?;
        } else {
            checks::residents(&mut self.commons, [&self.stations[at]])?;
        }
        if self.commons.rng.below(4) == 0 {
            let text = self.commons.texts.prompt(&mut self.commons.rng);
            checks::overlaps(&mut self.commons, &self.stations, &text)?;
        }
        Ok(())
    }

    fn compare_all(&mut self) -> Result<(), String> {
        self.commons.index.check();
        checks::residents(&mut self.commons, &self.stations)
    }

    /// Lets time pass in which engines do nothing.
    fn rest(&mut self, time: Duration) -> Result<(), String> {
        let end = self.commons.now + time;
        for station in &mut self.stations {
            // Engines do nothing until they are stepped by hand.
            station.next_step = Nanos(u64::MAX);
        }
        for _ in 0..TURNS_MAX {
            let next = self.next();
            // Both: timers may be due later than the end while a message is still under way.
            if next > end && self.stations.iter().all(Station::is_quiet) {
                self.commons.now = self.commons.now.max(end);
                return self.compare_all();
            }
            self.advance(next)?;
        }
        Err("the streams do not come to rest".to_owned())
    }

    /// Engines go on for a while, and then everybody rests.
    fn go_on(&mut self, num_steps: usize) -> Result<(), String> {
        for _ in 0..num_steps {
            self.rest(Duration::from_millis(300))?;
            for station in &mut self.stations {
                station.publish_something(&mut self.commons);
            }
        }
        // Assumed prompts must have aged out, or overlaps could not be compared.
        self.rest(SETTLE_TIME.max(ASSUMPTION_TTL))?;
        self.ask_much()
    }

    fn ask_much(&mut self) -> Result<(), String> {
        for _ in 0..10 {
            let text = self.commons.texts.prompt(&mut self.commons.rng);
            checks::overlaps(&mut self.commons, &self.stations, &text)?;
        }
        Ok(())
    }

    /// Nothing goes wrong any more: everything arrives, and what is in doubt ages out.
    fn heal(&mut self) -> Result<(), String> {
        self.commons.note(|| "everything is healed".to_owned());
        let is_told_at_once = |station: &Station| {
            let spec = &station.spec;
            spec.follower.can_replay && spec.buffer_max > 0 && spec.habits.set_clock == 0
        };
        let steps =
            if self.stations.iter().all(is_told_at_once) { STEPS_AFTER } else { STEPS_HEALED };
        for station in &mut self.stations {
            station.heal(&mut self.commons);
        }
        self.rest(Duration::from_millis(200))?;
        self.go_on(steps)?;
        for station in &self.stations {
            let is_complete = up_to_date(station, false)?;
            self.commons.tally.ended_complete += u64::from(is_complete);
            self.commons.tally.ended_partial += u64::from(!is_complete);
        }
        // All that is in doubt ages out in this time.
        self.rest(DOUBT_TTL)?;
        let mut result = Ok(());
        let stations = &self.stations;
        self.commons.index.residents(self.commons.now, &mut |resident| {
            let station = &stations[resident.replica.0 as usize];
            if resident.is_doubtful && !station.truth.has_blurred() {
                result = Err(format!("{resident:?} is in doubt for ever"));
            }
        });
        result
    }

    /// Behind a clear, every stream is complete.
    fn clear(&mut self) -> Result<(), String> {
        for station in &mut self.stations {
            station.clear(&mut self.commons);
        }
        self.go_on(STEPS_AFTER)?;
        let stations = &mut self.stations.iter();
        stations.try_for_each(|station| up_to_date(station, true).map(drop))
    }

    /// Behind a restart, every stream whose publisher answers is complete.
    fn restart(&mut self) -> Result<(), String> {
        for station in &mut self.stations {
            // Every replay reaches back to the first batch, so no excuse is left.
            station.spec.buffer_max = usize::MAX;
            match self.commons.rng.below(3) {
                0 if station.spec.can_hide => station.crash(ProcessEnd::Hidden, &mut self.commons),
                0 | 1 => station.crash(ProcessEnd::Seen, &mut self.commons),
                _ => station.replace(&mut self.commons),
            }
        }
        self.go_through(STEPS_AFTER * self.stations.len())?;
        self.rest(Duration::from_millis(200))?;
        self.go_on(STEPS_AFTER)?;
        for station in &self.stations {
            up_to_date(station, station.spec.follower.can_replay)?;
        }
        Ok(())
    }

    /// Nothing is left of a replica that is gone.
    fn forget(&mut self) -> Result<(), String> {
        let Commons { index, now, .. } = &self.commons;
        for station in &self.stations {
            index.update(station.replica, Update::Forget, *now);
            index.check();
        }
        let stats = index.stats();
        let left = (stats.entries, stats.doubtful, stats.assumed_prompts, stats.held);
        match left {
            (0, 0, 0, 0) => Ok(()),
            _ => Err(format!("something is left of forgotten replicas: {stats:?}")),
        }
    }
}

/// Whether the stream is complete; an error if it is not where it should be.
fn up_to_date(station: &Station, must_be_complete: bool) -> Result<bool, String> {
    let (at, last) = (station.truth.position(), station.process().last());
    let status = station.follower.status();
    // A clear that was applied ends both, so losses before it do not count.
    let is_exact = !station.truth.has_loss() && !station.truth.is_doubted();
    let is_complete = status == StreamStatus::Complete;
    let is_right = match status {
        StreamStatus::Complete => true,
        StreamStatus::Partial => !is_exact && !must_be_complete,
        StreamStatus::Down | StreamStatus::Replaying => false,
    };
    if at != last || !is_right {
        let replica = station.replica;
        let exact = if is_exact { "with nothing lost" } else { "after losses" };
        let report = station.follower.report();
        return Err(format!("{replica:?} rests {exact} at {at:?} instead of {last:?}: {report:?}"));
    }
    Ok(is_complete)
}
