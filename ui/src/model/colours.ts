// The colour of a project follows from its name alone, so that it stays when other projects come and go, and is the same for every
// person. Eight hues that people tell apart who do not tell red from green, each in three shades; the name is beside each.

const HUES = 8;
const SHADES = 3;

/** A number from a name. The factor gives names that differ in one letter different hues. */
function hash(name: string) {
  let value = 2166136261;
  for (let index = 0; index < name.length; index += 1) {
    value = Math.imul(value ^ name.charCodeAt(index), 16777619);
  }
  return Math.imul(value, FACTOR) >>> 12;
}

const FACTOR = 45363;

/** The colour of a project as a value of CSS. */
export function colour(project: string): string {
  const number = hash(project);
  const hue = `var(--p${number % HUES})`;
  switch (Math.floor(number / HUES) % SHADES) {
    case 1:
      return `color-mix(in oklab, ${hue} 70%, var(--text))`;
    case 2:
      return `color-mix(in oklab, ${hue} 66%, var(--panel))`;
    default:
      return hue;
  }
}
