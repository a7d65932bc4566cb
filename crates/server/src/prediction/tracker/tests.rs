use headstart_core::Rng;

use super::*;

const HORIZON: Duration = Duration::from_secs(100);

fn tracker(turns: usize) -> Tracker {
    let horizon = HORIZON;
    Tracker::new(TrackerLimits { turns, horizon })
}

fn at(seconds: u64) -> Nanos {
    Nanos(seconds * 1_000_000_000)
}

/// The prefixes of a conversation named by one letter per user message: `abc` is the third turn
/// after `ab`.
fn prefixes(path: &str) -> Vec<PrefixKey> {
    let key = |length: usize| {
        let mut key = PrefixKey::default();
        key[..length].copy_from_slice(&path.as_bytes()[..length]);
        key
    };
    (1..=path.len()).map(key).collect()
}

fn observe(tracker: &mut Tracker, path: &str, now: u64) -> Sighting {
    let sighting = tracker.observe(&prefixes(path), path.len() as u16, at(now));
    tracker.check();
    sighting
}

/// Asks at `now` and gets the answer two seconds later.
fn served(tracker: &mut Tracker, path: &str, now: u64) -> Sighting {
    let sighting = observe(tracker, path, now);
    let own = prefixes(path).pop().expect("a prefix");
    tracker.answered(&own, sighting.id, at(now + 2));
    tracker.check();
    sighting
}

/// The outcomes since the last look, as (turn id, turn, continued).
fn outcomes(tracker: &mut Tracker) -> Vec<(TurnId, u16, bool)> {
    let taken = tracker.take_outcomes().into_iter();
    taken.map(|outcome| (outcome.id, outcome.turn, outcome.became == Became::Continued)).collect()
}

#[test]
fn a_continuation_has_the_conversation_the_gap_and_in_time_an_outcome() {
    let mut tracker = tracker(100);
    let first = served(&mut tracker, "a", 10);
    assert_eq!((first.gap, first.is_repeat), (None, false));
    let other = served(&mut tracker, "x", 10);
    assert_ne!(first.conversation, other.conversation);
    let second = served(&mut tracker, "ab", 40);
    assert_eq!(second.conversation, first.conversation);
    assert_eq!(second.gap, Some(Duration::from_secs(28)));
    tracker.expire(at(111));
    assert_eq!(outcomes(&mut tracker), [], "endings take as long to be known");
    tracker.expire(at(112));
    let told = outcomes(&mut tracker);
    assert_eq!(told, [(first.id, 1, true), (other.id, 1, false)]);
}

#[test]
fn silence_beyond_the_horizon_is_the_end() {
    let mut tracker = tracker(100);
    let first = served(&mut tracker, "a", 0);
    let second = served(&mut tracker, "ab", 50);
    tracker.expire(at(151));
    let told = outcomes(&mut tracker);
    assert_eq!(told, [(first.id, 1, true)], "the second may go on");
    tracker.expire(at(152));
    assert_eq!(outcomes(&mut tracker), [(second.id, 2, false)]);
    assert!(tracker.is_empty());
    let third = served(&mut tracker, "abc", 153);
    assert_ne!(third.conversation, first.conversation, "too late to go on");
    assert_eq!(third.gap, None);
}

#[test]
fn a_repeat_continues_nothing_and_keeps_the_turn_alive() {
    let mut tracker = tracker(100);
    let first = served(&mut tracker, "a", 0);
    let retry = served(&mut tracker, "a", 90);
    assert_eq!((retry.id, retry.is_repeat), (first.id, true));
    assert_eq!(retry.conversation, first.conversation);
    tracker.expire(at(191));
    assert_eq!(outcomes(&mut tracker), []);
    tracker.expire(at(192));
    assert_eq!(outcomes(&mut tracker), [(first.id, 1, false)]);
}

#[test]
fn a_branch_is_a_conversation_of_its_own() {
    let mut tracker = tracker(100);
    let first = served(&mut tracker, "a", 0);
    let one = served(&mut tracker, "ab", 10);
    let branch = served(&mut tracker, "ac", 20);
    assert_eq!(one.conversation, first.conversation);
    assert_ne!(branch.conversation, first.conversation);
    assert_eq!(branch.gap, Some(Duration::from_secs(18)));
    let next = served(&mut tracker, "acd", 30);
    assert_eq!(next.conversation, branch.conversation);
    tracker.expire(at(111));
    let told = outcomes(&mut tracker);
    assert_eq!(told, [(first.id, 1, true)], "a turn has one outcome");
}

#[test]
fn turns_that_others_answered_are_stepped_over() {
    let mut tracker = tracker(100);
    let first = served(&mut tracker, "a", 0);
    let third = served(&mut tracker, "abc", 10);
    assert_eq!(third.conversation, first.conversation);
    assert_eq!(third.gap, None, "the end of the second answer is not known");
    tracker.expire(at(102));
    assert_eq!(outcomes(&mut tracker), [(first.id, 1, true)]);
}

#[test]
fn what_was_never_answered_has_no_outcome() {
    let mut tracker = tracker(100);
    let own = prefixes("a");
    let refused = observe(&mut tracker, "a", 0);
    tracker.withdrawn(&own[0], refused.id);
    assert!(tracker.is_empty());
    // Long answers do not end while they run.
    let slow = observe(&mut tracker, "a", 1);
    tracker.expire(at(10_000));
    assert_eq!((tracker.len(), outcomes(&mut tracker)), (1, vec![]));
    // A retry that fails takes nothing from the first.
    tracker.answered(&own[0], slow.id, at(10_000));
    let retry = observe(&mut tracker, "a", 10_050);
    tracker.withdrawn(&own[0], retry.id);
    tracker.expire(at(10_100));
    assert_eq!(outcomes(&mut tracker), [(slow.id, 1, false)]);
}

#[test]
fn a_full_table_forgets_who_waits_longest() {
    let mut tracker = tracker(2);
    let running = observe(&mut tracker, "r", 0);
    served(&mut tracker, "a", 1);
    served(&mut tracker, "b", 2);
    assert_eq!((tracker.len(), tracker.forgotten()), (2, 1));
    assert!(!observe(&mut tracker, "a", 3).is_repeat, "it was forgotten");
    let lost = observe(&mut tracker, "c", 4);
    assert_eq!((tracker.len(), tracker.forgotten()), (2, 3), "no room for c");
    tracker.answered(&prefixes("c")[0], lost.id, at(5));
    tracker.answered(&prefixes("r")[0], running.id, at(6));
    tracker.check();
    assert_eq!(outcomes(&mut tracker), []);
}

/// The same rules, written down as a list that is searched from end to end.
#[derive(Default)]
struct Reference {
    turns: Vec<(String, TrackedTurn)>,
    outcomes: Vec<(TurnId, u16, bool)>,
    ids: (u64, u64),
}

impl Reference {
    fn expire(&mut self, now: Nanos) {
        let has_ended = |turn: &TrackedTurn| {
            let answered = turn.answered.filter(|_| turn.in_flight == 0);
            answered.is_some_and(|answered| now >= answered + HORIZON)
        };
        let mut ended: Vec<_> = self.turns.iter().map(|(_, turn)| turn).cloned().collect();
        ended.retain(has_ended);
        ended.sort_by_key(|turn| (turn.answered, turn.id));
        let ended = ended.iter();
        let ended = ended.map(|turn| (turn.id, turn.number, turn.is_continued));
        self.outcomes.extend(ended);
        self.turns.retain(|(_, turn)| !has_ended(turn));
    }

    fn observe(&mut self, path: &str, now: Nanos) -> Sighting {
        self.expire(now);
        let earlier = self.turns.iter_mut();
        let earlier = earlier.filter(|(known, _)| path.len() > known.len());
        let earlier = earlier.filter(|(known, _)| path.starts_with(known));
        let parent = earlier.max_by_key(|(known, _)| known.len());
        let mut gap = None;
        let mut conversation = None;
        if let Some((known, turn)) = parent {
            if known.len() + 1 == path.len() {
                gap = turn.answered.map(|answered| now.since(answered));
            }
            if !turn.is_continued {
                turn.is_continued = true;
                conversation = Some(turn.conversation);
            }
        }
        if let Some((_, turn)) = self.turns.iter_mut().find(|(known, _)| known == path) {
            turn.in_flight += 1;
            return Sighting { id: turn.id, conversation: turn.conversation, gap, is_repeat: true };
        }
        let conversation = conversation.unwrap_or_else(|| {
            self.ids.1 += 1;
            SessionId(self.ids.1)
        });
        self.ids.0 += 1;
        let turn = TrackedTurn {
            id: TurnId(self.ids.0),
            conversation,
            number: path.len() as u16,
            in_flight: 1,
            answered: None,
            is_continued: false,
        };
        let sighting = Sighting { id: turn.id, conversation, gap, is_repeat: false };
        self.turns.push((path.to_owned(), turn));
        sighting
    }

    fn landed(&mut self, path: &str, answered: Option<Nanos>) {
        let index = self.turns.iter().position(|(known, _)| known == path);
        let index = index.expect("what is in flight is known");
        let turn = &mut self.turns[index].1;
        turn.in_flight -= 1;
        turn.answered = answered.or(turn.answered);
        if turn.in_flight == 0 && turn.answered.is_none() {
            self.turns.remove(index);
        }
    }
}

#[test]
fn agrees_with_a_searched_list_on_random_traffic() {
    for seed in 0..50 {
        let mut rng = Rng::new(seed);
        let (mut tracker, mut reference) = (tracker(10_000), Reference::default());
        let mut in_flight: Vec<(String, TurnId)> = Vec::new();
        let mut now = 0;
        let mut paths = vec![String::new()];
        let (mut ended, mut repeats, mut branches) = (0, 0, 0);
        for step in 0..400 {
            now += rng.below(20) as u64;
            if rng.below(2) == 0 || in_flight.is_empty() {
                let mut path = paths[rng.below(paths.len())].clone();
                if path.is_empty() || (path.len() < 6 && rng.below(4) > 0) {
                    path.push(['a', 'b', 'c'][rng.below(3)]);
                }
                let got = observe(&mut tracker, &path, now);
                assert_eq!(got, reference.observe(&path, at(now)), "seed {seed} step {step}");
                repeats += u32::from(got.is_repeat);
                branches += u32::from(got.gap.is_some() && !got.is_repeat);
                paths.push(path.clone());
                in_flight.push((path, got.id));
            } else {
                let (path, id) = in_flight.swap_remove(rng.below(in_flight.len()));
                let own = prefixes(&path).pop().expect("a prefix");
                let is_answered = rng.below(5) > 0;
                if is_answered {
                    tracker.answered(&own, id, at(now));
                } else {
                    tracker.withdrawn(&own, id);
                }
                tracker.check();
                reference.landed(&path, is_answered.then(|| at(now)));
            }
            let got = outcomes(&mut tracker);
            ended += got.iter().filter(|(_, _, continued)| !continued).count();
            assert_eq!(got, std::mem::take(&mut reference.outcomes), "seed {seed} step {step}");
            assert_eq!(tracker.len(), reference.turns.len(), "seed {seed} step {step}");
        }
        assert!(ended > 0 && repeats > 0 && branches > 0, "seed {seed} saw all cases");
    }
}
