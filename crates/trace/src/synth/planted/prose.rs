//! Sentences that tell nothing of the outcome: context in prompts, answers, system prompts.

/// Templates of the context that users add to their prompts.
pub(super) const CONTEXT: &[&str] = &[
    "[my|our] {thing} [is|has been] [mostly|mainly|largely] about {topic} [so far|].",
    "{person} [told me|mentioned|said] that {topic} is [quite|rather|very|] {quality}.",
    "[a friend|somebody|{person}] [gave|showed] me a {thing} [on|about] {topic} [last week|\
     yesterday|in spring].",
    "[we|I] [live|work] [with|near|close to] {topic} and {other}.",
    "[for context|as background], {topic} [is|seems] [more {quality}|less {quality}] than {other}.",
    "{person} has [{number} years|{number} months] of experience with {topic}.",
    "[the|this] {thing} has [about|roughly|some] {number} pages [on {topic}|].",
    "[most|some|many] [people|books|videos] [say|claim] that {topic} is {quality}.",
    "[it was|it is] [a rainy|a busy|a warm] [Monday|morning|week], and {person} [worked on|talked \
     about] {topic}.",
    "[I use|we use] a [small|large|cheap|{quality}] {thing} [at home|at school|at work].",
    "{topic} and {other} are [both|equally|] {quality} [to us|to me|here].",
    "[the budget|the limit] is [around|about|some] {number} [euros|dollars|pounds].",
];

/// Templates of the sentences of answers.
pub(super) const ANSWER: &[&str] = &[
    "[in general|usually|in practice|often], {topic} [depends on|goes together with|is shaped by] \
     {other} [and local habits|and experience|].",
    "[a|one] [common|useful|typical] [example|case] is a {thing} [built around|that covers] \
     {topic}.",
    "[experts|books|guides] [describe|treat] {topic} as {quality}, [though|while] {other} is \
     [often|sometimes] {quality}.",
    "[the first point|another point|a further point] is that {topic} takes [about|some] {number} \
     [hours|days|weeks].",
    "[people|many|beginners] [compare|connect] {topic} [with|to] {other} because both are \
     {quality}.",
    "[note that|keep in mind that|in addition,] the {thing} [mentions|includes|covers] {topic} [in \
     {number} places|].",
    "[a {quality} approach|a {quality} way] [combines|balances] {topic} [with|and] {other}.",
    "according to [most sources|several studies|common practice], {topic} [became|has \
     become|is] {quality} [over the years|recently|].",
    "[for example|for instance], {person} [used|made|kept] a {thing} with {number} [items|entries|\
     sections] on {topic}.",
    "[the main parts|the key parts|the elements] are {topic}, {other} and a {quality} {thing}.",
];

/// Templates of the sentences of system prompts.
pub(super) const INSTRUCTIONS: &[&str] = &[
    "[answer|reply|respond] in a {quality} [tone|style|manner] when {topic} [comes up|is the \
     subject|is mentioned].",
    "[never|do not] [invent|guess] [facts|figures|sources] about {topic}; [say so|say it] when you \
     [do not know|are unsure].",
    "[prefer|use] [short|clear|plain] [sentences|words|examples], as in a {quality} {thing}.",
    "[our users|the users|people here] [know|care about|work with] {topic} and {other}.",
    "[a|every] {thing} has at most {number} [items|sections|lines] unless [asked|told] otherwise.",
    "[treat|handle] [questions|requests] [on|about] {other} [as {quality}|with care|like any \
     other].",
];
