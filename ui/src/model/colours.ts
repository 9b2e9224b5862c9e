// A project has the same colour everywhere and always. The eight colours differ in hue and in lightness, so that people who
// do not tell red from green tell them apart; and a name stands beside each.

export const COLOURS = 8;

/** The colour of each project: by its name, moved on when an earlier name has it. */
export function assign(names: Iterable<string>): Map<string, number> {
  const taken = new Set<number>();
  const colours = new Map<string, number>();
  for (const name of [...names].sort()) {
    let colour = hash(name) % COLOURS;
    if (taken.size < COLOURS) while (taken.has(colour)) colour = (colour + 1) % COLOURS;
    taken.add(colour);
    colours.set(name, colour);
  }
  return colours;
}

/** The factor spreads names that differ in one letter over different colours. */
function hash(name: string) {
  let value = 2166136261;
  for (let index = 0; index < name.length; index += 1) {
    value = Math.imul(value ^ name.charCodeAt(index), 16777619);
  }
  return Math.imul(value, 1131) >>> 16;
}

let known: { names: string; colours: Map<string, number> } = { names: '', colours: new Map() };

/** Told by whoever knows all projects. */
export function knowProjects(names: string[]) {
  const joined = names.join('/');
  if (joined !== known.names) known = { names: joined, colours: assign(names) };
}

/** The colour of a project as a value of CSS. */
export function colour(project: string): string {
  return `var(--p${known.colours.get(project) ?? hash(project) % COLOURS})`;
}
