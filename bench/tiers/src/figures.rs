//! Measurements: one point a round for everything that is timed.

use serde::Serialize;

use crate::clock::Spent;

/// The operation that was measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum What {
    /// Written, with nothing said about a loss of power.
    Write,
    /// The same over blocks that were written before.
    WriteOver,
    /// Written, and there after a loss of power.
    WriteDurable,
    /// Read in the order in which it was written.
    ReadSequential,
    /// Read in random order.
    ReadRandom,
    /// Copied from buffer to buffer.
    Copy,
    /// The same in pieces as long as a record's parts, to another offset of a page.
    CopyParts,
    /// A draft's parts filled from buffers.
    Fill,
    /// A draft's checksums computed.
    Seal,
    /// A record's parts copied out to buffers.
    ReadOut,
    /// A slot's bytes verified to be a record.
    Verify,
}

impl What {
    /// As tables have it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Write => "write",
            Self::WriteOver => "write over",
            Self::WriteDurable => "write until durable",
            Self::ReadSequential => "read sequentially",
            Self::ReadRandom => "read randomly",
            Self::Copy => "memcpy",
            Self::CopyParts => "memcpy, part by part",
            Self::Fill => "fill parts",
            Self::Seal => "seal",
            Self::ReadOut => "read parts out",
            Self::Verify => "verify",
        }
    }

    /// Whether it needs no disk.
    pub(crate) fn is_in_memory(self) -> bool {
        use What::{Copy, CopyParts, Fill, ReadOut, Seal, Verify};
        matches!(self, Copy | CopyParts | Fill | Seal | ReadOut | Verify)
    }
}

/// Names what is timed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Key {
    /// The store or tool that is measured.
    pub(crate) subject: String,
    /// The operation.
    pub(crate) what: What,
    /// Bytes of a record's payload, or of fio's block, KiB.
    pub(crate) kib: usize,
}

/// One round of one thing.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct Point {
    /// Payload, 10^6 bytes a second.
    pub(crate) mb_per_s: f64,
    /// CPU time, seconds per 10^9 bytes of payload.
    pub(crate) cpu_s_per_gb: f64,
    /// Records found among those asked for; 1 where nothing can be missing.
    pub(crate) hit_share: f64,
    /// Records that came from memory among those found.
    pub(crate) memory_share: f64,
    /// Seconds from an empty folder to the first put; 0 where nothing is opened.
    pub(crate) open_s: f64,
    /// Syncs by which fio made its writes durable.
    pub(crate) syncs: u64,
    /// The whole process, with its start, where `cpu_s_per_gb` is of a part: fio.
    pub(crate) process_cpu_s_per_gb: Option<f64>,
}

impl Point {
    /// `bytes` of payload in that time.
    pub(crate) fn of(bytes: usize, spent: Spent) -> Self {
        Self {
            mb_per_s: bytes as f64 / 1e6 / spent.wall.as_secs_f64().max(1e-9),
            cpu_s_per_gb: spent.cpu_s / (bytes.max(1) as f64 / 1e9),
            hit_share: 1.0,
            ..Self::default()
        }
    }
}

/// One thing in all rounds.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Series {
    /// Its name.
    pub(crate) key: Key,
    /// By round.
    pub(crate) rounds: Vec<Point>,
}

impl Series {
    /// Median, least and most of one figure.
    pub(crate) fn range(&self, of: impl Fn(&Point) -> f64) -> Range {
        Range::of(self.rounds.iter().map(of).collect())
    }

    /// One figure over that of another series, round by round.
    pub(crate) fn over(&self, other: &Self, of: impl Fn(&Point) -> f64) -> Range {
        let pairs = self.rounds.iter().zip(&other.rounds);
        Range::of(pairs.map(|(one, other)| of(one) / of(other)).collect())
    }
}

/// Everything that was timed.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Figures {
    /// In the order of their first round.
    pub(crate) series: Vec<Series>,
}

impl Figures {
    /// Adds a point to its series.
    pub(crate) fn add(&mut self, key: Key, point: Point) {
        match self.series.iter_mut().find(|series| series.key == key) {
            Some(series) => series.rounds.push(point),
            None => self.series.push(Series {
                key,
                rounds: vec![point],
            }),
        }
    }

    /// The fastest series of `what` with that record size among subjects whose names begin so.
    pub(crate) fn fastest(&self, subject: &str, what: What, kib: Option<usize>) -> Option<&Series> {
        let fits = |series: &&Series| {
            let key = &series.key;
            key.subject.starts_with(subject)
                && key.what == what
                && kib.is_none_or(|kib| key.kib == kib)
        };
        let speed = |series: &&Series| series.range(|point| point.mb_per_s).median;
        let all = self.series.iter().filter(fits);
        all.max_by(|one, other| speed(one).total_cmp(&speed(other)))
    }
}

/// Median and extremes of values.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Range {
    /// Half of them are below; the mean of the middle two where their number is even.
    pub(crate) median: f64,
    /// The least.
    pub(crate) min: f64,
    /// The most.
    pub(crate) max: f64,
}

impl Range {
    fn of(mut values: Vec<f64>) -> Self {
        values.sort_by(f64::total_cmp);
        let len = values.len();
        let median = match len {
            0 => 0.0,
            len if len % 2 == 1 => values[len / 2],
            len => f64::midpoint(values[len / 2 - 1], values[len / 2]),
        };
        Self {
            median,
            min: values.first().copied().unwrap_or_default(),
            max: values.last().copied().unwrap_or_default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(mb_per_s: f64) -> Point {
        Point {
            mb_per_s,
            ..Point::default()
        }
    }

    #[test]
    fn ratios_are_taken_within_a_round() {
        let mut figures = Figures::default();
        let key = |subject: &str| Key {
            subject: subject.to_owned(),
            what: What::ReadRandom,
            kib: 64,
        };
        for (ours, psync, uring) in [(10.0, 5.0, 1.0), (30.0, 10.0, 9.0), (8.0, 8.0, 99.0)] {
            figures.add(key("ours"), point(ours));
            figures.add(key("foyer psync"), point(psync));
            figures.add(key("foyer uring"), point(uring));
        }
        let find = |subject| {
            figures
                .fastest(subject, What::ReadRandom, Some(64))
                .unwrap()
        };
        let (ours, uring) = (find("ours"), find("foyer"));
        assert_eq!(
            uring.key.subject, "foyer uring",
            "its median is the higher one"
        );
        let ratio = ours.over(find("foyer psync"), |point| point.mb_per_s);
        assert_eq!((ratio.median, ratio.min, ratio.max), (2.0, 1.0, 3.0));
        assert!(figures.fastest("fio", What::ReadRandom, None).is_none());
    }
}
