//! Characterization of a trace as JSON, with the field names of `headstart_trace::characterize`.

use headstart_analysis::results::Analysis;
use headstart_trace::characterize::report::{Sessions, TypeShare};
use serde_json::{Value, json};

/// The object under `characterization`.
pub(super) fn characterization(analysis: &Analysis) -> Value {
    let numbers = &analysis.characterization;
    // Without times there is nothing to say of durations.
    let is_dated = analysis.span_s.is_some();
    json!({
        "sampling": numbers.sampling,
        "ideal": numbers.ideal,
        "over_time": is_dated.then_some(&numbers.over_time),
        "types": numbers.types.iter().map(|share| typed(analysis, share)).collect::<Vec<_>>(),
        "turns": numbers.turns,
        "origins": numbers.origins,
        "block_skew": numbers.block_skew,
        "session_skew": numbers.session_skew,
        "user_skew": numbers.user_skew,
        "sessions": sessions(&numbers.sessions, is_dated),
        "users": numbers.users,
        "next_turn": is_dated.then(|| next_turn(analysis)),
        "reuse": is_dated.then(|| reuse_times(analysis)),
        "locality": numbers.locality,
        "lifespan": is_dated.then_some(numbers.lifespan),
        "sizes": numbers.sizes,
        "capacity": numbers.capacity,
    })
}

fn typed(analysis: &Analysis, share: &TypeShare) -> Value {
    json!({
        "type": analysis.type_name(share.request_type),
        "all": share.all,
        "single": share.single,
        "multi": share.multi,
        "first_turn": share.first_turn,
        "later_turns": share.later_turns,
        "share_of_hits": share.share_of_hits,
    })
}

fn sessions(sessions: &Sessions, is_dated: bool) -> Value {
    let mut object = json!(sessions);
    if !is_dated {
        object["length_s"] = Value::Null;
    }
    object
}

fn next_turn(analysis: &Analysis) -> Value {
    let turns = &analysis.characterization.next_turn;
    let classes = turns.classes.iter().map(|class| {
        json!({
            "type": analysis.type_name(class.request_type),
            "turn": class.turn,
            "next": class.next,
        })
    });
    json!({
        "horizon_s": turns.horizon_s,
        "all": turns.all,
        "classes": classes.collect::<Vec<_>>(),
        "gap_s": turns.gap_s,
        "within": turns.within,
    })
}

fn reuse_times(analysis: &Analysis) -> Value {
    let times = &analysis.characterization.reuse;
    let by_type = times.by_type.iter();
    let by_type =
        by_type.map(|(index, reuse)| json!({"type": analysis.type_name(*index), "reuse": reuse}));
    let by_turn = times.by_turn.iter().map(|(turn, reuse)| json!({"turn": turn, "reuse": reuse}));
    json!({
        "all": times.all,
        "by_type": by_type.collect::<Vec<_>>(),
        "by_turn": by_turn.collect::<Vec<_>>(),
    })
}
