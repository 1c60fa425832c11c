// The picture of each system.

const PICTURES = {};

function pictureOf(question) {
  const draw = PICTURES[question.system];
  const drawn = draw ? draw(question) : null;
  return drawn ? section("How the system went", drawn) : null;
}
