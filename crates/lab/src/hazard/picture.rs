//! The curves as a picture: age and chance on logarithmic scales.

use std::fmt::Write;

use headstart_cache::policy::HazardCurve;

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 360.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 110.0;
const TOP: f64 = 20.0;
const BOTTOM: f64 = 50.0;

/// Seconds and chances at the ends of the axes.
const AGES_S: [f64; 2] = [0.25, 86_400.0];
const CHANCES: [f64; 2] = [1e-6, 0.3];

/// Marks of the axes.
const AGE_MARKS: [(f64, &str); 6] = [
    (1.0, "1 s"),
    (10.0, "10 s"),
    (60.0, "1 min"),
    (600.0, "10 min"),
    (3_600.0, "1 h"),
    (86_400.0, "1 day"),
];
const CHANCE_MARKS: [(f64, &str); 6] = [
    (0.1, "10 %"),
    (0.01, "1 %"),
    (0.001, "0.1 %"),
    (1e-4, "0.01 %"),
    (1e-5, "0.001 %"),
    (1e-6, "0.0001 %"),
];

/// One colour for each curve, that people tell apart whatever they see of colours.
const COLOURS: [&str; 5] = ["#777777", "#0072b2", "#d55e00", "#009e73", "#cc79a7"];

/// Draws the curves, with their names in their colours at the right.
pub(super) fn svg(curves: &[HazardCurve]) -> String {
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"white\"/>\n"
    );
    let (right, bottom) = (WIDTH - RIGHT, HEIGHT - BOTTOM);
    for (age, name) in AGE_MARKS {
        let x = x(age);
        line(&mut svg, [x, TOP, x, bottom]);
        text(&mut svg, [x, bottom + 18.0], "middle", "#333", name);
    }
    for (chance, name) in CHANCE_MARKS {
        let y = y(chance);
        line(&mut svg, [LEFT, y, right, y]);
        text(&mut svg, [LEFT - 6.0, y + 4.0], "end", "#333", name);
    }
    let middle = f64::midpoint(LEFT, right);
    text(
        &mut svg,
        [middle, HEIGHT - 8.0],
        "middle",
        "#333",
        "time since the last request of the conversation",
    );
    text(&mut svg, [LEFT, 12.0], "start", "#333", "chance to return within the next second");
    for (row, (curve, colour)) in (1..).zip(curves.iter().zip(COLOURS)) {
        let points = curve
            .per_second
            .iter()
            .filter(|(age, chance)| (AGES_S[0]..=AGES_S[1]).contains(age) && *chance >= CHANCES[0]);
        let points: Vec<_> = points.map(|&(age, chance)| (x(age), y(chance))).collect();
        let path: String = points.iter().map(|(x, y)| format!("{x:.1},{y:.1} ")).collect();
        let path = path.trim_end();
        let _ = writeln!(
            svg,
            "<polyline points=\"{path}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>"
        );
        let name = [right + 10.0, TOP + 18.0 * f64::from(row)];
        text(&mut svg, name, "start", colour, curve.finish.name());
    }
    svg + "</svg>\n"
}

fn x(age_s: f64) -> f64 {
    LEFT + (WIDTH - LEFT - RIGHT) * position(age_s, AGES_S)
}

fn y(chance: f64) -> f64 {
    HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * position(chance.min(CHANCES[1]), CHANCES)
}

/// The position of a value between two others on a logarithmic scale, 0 to 1.
fn position(value: f64, [from, to]: [f64; 2]) -> f64 {
    (value / from).ln() / (to / from).ln()
}

fn line(svg: &mut String, [x1, y1, x2, y2]: [f64; 4]) {
    let _ = writeln!(
        svg,
        "<line x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\" stroke=\"#ddd\"/>"
    );
}

fn text(svg: &mut String, [x, y]: [f64; 2], anchor: &str, colour: &str, text: &str) {
    let _ = writeln!(
        svg,
        "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" fill=\"{colour}\">{text}</text>"
    );
}

#[cfg(test)]
mod tests {
    use headstart_core::FinishKind;

    use super::*;

    #[test]
    fn a_curve_stays_within_the_axes() {
        let per_second = vec![(0.0, 0.9), (0.25, 0.9), (1.0, 0.01), (600.0, 1e-5), (1e7, 1e-9)];
        let curve = HazardCurve { finish: FinishKind::Stop, requests: 9, per_second };
        let svg = svg(&[curve]);
        let points = svg.split("points=\"").nth(1).expect("a line").split('"').next();
        let points: Vec<&str> = points.expect("points").split(' ').collect();
        assert_eq!(points.len(), 3, "{points:?}");
        assert!(points[0].starts_with("70.0,20.0"), "{points:?}");
        assert!(svg.contains(">stop</text>") && svg.ends_with("</svg>\n"));
    }
}
