//! Tests of the log lines, their rate, and the current problem.

use super::*;

fn config() -> SubscriberConfig {
    SubscriberConfig {
        endpoint: "tcp://h:1".to_owned(),
        replay_endpoint: Some("tcp://h:2".to_owned()),
        ..SubscriberConfig::default()
    }
}

fn problem(notes: &Notes) -> String {
    notes.problem(&config(), Instant::now()).unwrap_or_default()
}

fn told(cause: SocketProblem) -> Option<StreamLogLine> {
    Some(StreamLogLine::Trouble(Side::Events, cause))
}

#[test]
fn a_cause_is_told_once_until_it_recovers() {
    let mut notes = Notes::default();
    assert_eq!(notes.on_trouble(SocketProblem::Refused), told(SocketProblem::Refused));
    assert_eq!(notes.on_trouble(SocketProblem::Refused), None);
    assert_eq!(notes.on_trouble(SocketProblem::NotZeroMq), told(SocketProblem::NotZeroMq));
    assert!(problem(&notes).starts_with("tcp://h:1: what listens there does not speak ZeroMQ; "));
    assert_eq!(notes.on_trouble(SocketProblem::Refused), None, "told since it was well");
    // A connection that breaks at once is no recovery.
    assert_eq!(notes.on_connected(), None);
    assert_eq!(notes.on_trouble(SocketProblem::Closed), told(SocketProblem::Closed));
    assert_eq!(notes.on_connected(), None);
    assert_eq!(notes.on_trouble(SocketProblem::Closed), None);
    assert_eq!(notes.on_connected(), None);
    assert_eq!(notes.on_stood(), Some(StreamLogLine::Mended(Side::Events)));
    assert_eq!((notes.on_stood(), problem(&notes)), (None, String::new()));
    assert_eq!(notes.on_trouble(SocketProblem::Refused), told(SocketProblem::Refused));
}

#[test]
fn the_first_connection_is_told_and_a_later_one_only_as_a_recovery() {
    let mut notes = Notes::default();
    assert_eq!(notes.on_connected(), Some(StreamLogLine::Following));
    assert_eq!((notes.on_stood(), notes.on_connected()), (None, None));
}

/// The system's words differ without end.
#[test]
fn causes_told_are_bounded() {
    let mut notes = Notes::default();
    let causes = (0..100).map(|number| SocketProblem::Unreachable(number.to_string()));
    let lines = causes.filter_map(|cause| notes.on_trouble(cause)).count();
    assert_eq!(lines, CAUSES_MAX);
    assert!(problem(&notes).contains("99"), "the last one is known all the same");
}

#[test]
fn a_silent_socket_is_well_again_when_it_speaks() {
    let mut notes = Notes::default();
    assert_eq!(notes.on_trouble(SocketProblem::Silent), told(SocketProblem::Silent));
    assert_eq!(notes.on_stood(), None);
    assert!(!problem(&notes).is_empty());
    assert_eq!(notes.on_live(), Some(StreamLogLine::Mended(Side::Events)));
    assert_eq!(notes.on_live(), None);
    // Nothing but silence is mended by a message.
    notes.on_trouble(SocketProblem::Closed);
    assert_eq!(notes.on_live(), None);
}

#[test]
fn replays_are_told_from_the_second_failure_in_a_row() {
    let mut notes = Notes::default();
    for _ in 0..3 {
        assert_eq!(notes.on_replay_failed(SocketProblem::Refused), None);
        assert_eq!((notes.on_replayed(), problem(&notes)), (None, String::new()));
    }
    notes.on_replay_failed(SocketProblem::Refused);
    let line = StreamLogLine::Trouble(Side::Replay, SocketProblem::Refused);
    assert_eq!(notes.on_replay_failed(SocketProblem::Refused), Some(line));
    assert_eq!(notes.on_replay_failed(SocketProblem::Refused), None);
    assert!(problem(&notes).starts_with("tcp://h:2: nothing listens at this port"));
    assert!(problem(&notes).contains("replay="));
    assert_eq!(notes.on_replayed(), Some(StreamLogLine::Mended(Side::Replay)));
}

#[test]
fn losses_are_told_at_once_and_then_once_a_minute() {
    let start = Instant::now();
    let at = |seconds| start + Duration::from_secs(seconds);
    let mut notes = Notes::default();
    assert_eq!((notes.flush(start), notes.due()), (None, None));
    let lost = |unreadable, batches, doubts, error: Option<&str>| {
        let tally = LossTally { unreadable, batches, doubts };
        Some(StreamLogLine::Lost(tally, error.map(str::to_owned)))
    };
    notes.on_doubt(3);
    assert_eq!(notes.flush(at(0)), lost(0, 3, 1, None));
    // The first error does not wait.
    notes.on_unreadable("cut off".to_owned(), at(1));
    notes.on_doubt(1);
    assert_eq!(notes.flush(at(1)), lost(1, 1, 1, Some("cut off")));
    for second in 2..61 {
        notes.on_unreadable(format!("batch {second}"), at(second));
        notes.on_doubt(1);
        assert_eq!(notes.flush(at(second)), None, "{second}");
    }
    assert_eq!(notes.due(), Some(at(61)));
    let text = notes.problem(&config(), at(60)).expect("errors came");
    assert!(text.contains("(batch 60)"), "{text}");
    assert_eq!(notes.flush(at(61)), lost(59, 59, 59, Some("batch 60")));
    assert_eq!((notes.flush(at(500)), notes.due()), (None, None));
    assert_eq!(notes.problem(&config(), at(120)), None, "long ago");
    notes.on_doubt(0);
    assert_eq!(notes.flush(at(501)), lost(0, 0, 1, None));
}

#[test]
fn an_unknown_type_is_told_once() {
    let start = Instant::now();
    let mut notes = Notes::default();
    let line = StreamLogLine::UnknownType("BlockPinned".to_owned());
    assert_eq!(notes.on_unknown_type("BlockPinned", start), Some(line));
    let later = start + UNKNOWN_TIME / 2;
    assert_eq!(notes.on_unknown_type("BlockPinned", later), None);
    assert_eq!(notes.on_unknown_type("BlockMoved", later), None);
    let problem = |at| notes.problem(&config(), at).unwrap_or_default();
    assert!(problem(start + UNKNOWN_TIME).contains("`BlockPinned`"));
    assert_eq!(problem(later + UNKNOWN_TIME), "");
}

#[test]
fn another_rank_is_told_once() {
    let start = Instant::now();
    let mut notes = Notes::default();
    assert_eq!(notes.on_other_rank(3, start), Some(StreamLogLine::OtherRank(3)));
    let later = start + UNKNOWN_TIME / 2;
    assert_eq!(notes.on_other_rank(1, later), None);
    let problem = |at| notes.problem(&config(), at).unwrap_or_default();
    assert!(problem(start + UNKNOWN_TIME).contains("rank 3"));
    assert_eq!(problem(later + UNKNOWN_TIME), "");
}

#[test]
fn a_remedy_names_what_to_change() {
    let remedy = |cause: SocketProblem, side, rank| cause.remedy(side, rank);
    let (events, replay) = (Side::Events, Side::Replay);
    for (text, part) in [
        (remedy(SocketProblem::Refused, events, None), "kv="),
        (remedy(SocketProblem::Refused, replay, None), "replay="),
        (remedy(SocketProblem::NotZeroMq, events, None), "HTTP port"),
        (remedy(SocketProblem::Unresolved, events, None), "host in kv="),
        (remedy(SocketProblem::OtherSocket, events, None), "swapped"),
        (remedy(SocketProblem::OtherSocket, replay, None), "swapped"),
        (remedy(SocketProblem::Refused, events, Some(2)), "data-parallel-size"),
        (remedy(SocketProblem::Unanswered, replay, None), "`replay_endpoint`"),
    ] {
        assert!(text.contains(part), "{text}");
    }
    // Rank 0's address is the one that was given.
    for rank in [None, Some(0)] {
        assert!(!remedy(SocketProblem::Refused, events, rank).contains("data-parallel"));
    }
}
