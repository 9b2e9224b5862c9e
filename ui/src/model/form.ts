// What forms are made of: the parts of something that can be set, what stands in their fields, and what that means.
import { quoted } from './command.ts';
import { type Shape, Wrong } from './shape.ts';

/** One thing that can be set. */
export interface Part<T> {
  label: string;
  flag: string;
  shape: Shape<T>;
  hint?: string;
  placeholder?: string;
  /** What can be chosen, or is often typed. */
  options?: { value: string; text: string }[];
  mono?: boolean;
  wide?: boolean;
}

/** Everything that can be set of something; what is left out has to be said. */
export type Parts<R, Not extends keyof R = never> = {
  [Id in Exclude<keyof R, Not>]-?: Part<NonNullable<R[Id]>>;
};

export type AnyParts = Record<string, Part<unknown>>;

/** What stands in the fields, by the names that the API has for them. */
export type Draft = Record<string, string>;

/** The words of a command that sets the same, by part. */
export function words(parts: AnyParts, set: object): Record<string, string[]> {
  const said: Record<string, string[]> = {};
  for (const [id, { shape, flag }] of Object.entries(parts)) {
    const value = (set as Record<string, unknown>)[id];
    if (value !== undefined && value !== null && value !== '') said[id] = shape.words(flag, value);
  }
  return said;
}

/** What is set already, as it stands in the fields. */
export function begin(parts: AnyParts, set: object): Draft {
  const draft: Draft = {};
  for (const [id, part] of Object.entries(parts)) {
    const value = (set as Record<string, unknown>)[id];
    draft[id] = value === undefined || value === null ? '' : part.shape.write(value);
  }
  return draft;
}

export interface Lowered {
  /** What is set, by the names that the API has for it. */
  set: Record<string, unknown>;
  /** What was set before and is not any more. */
  unset: string[];
  /** What is wrong, by the same names. */
  problems: Record<string, string>;
  /** The words of a command that say the same; what is wrong is in them as it was typed. */
  words: Record<string, string[]>;
}

/** What the fields mean; what stands in them as before is left out. */
export function lower(parts: AnyParts, draft: Draft, before: Draft = {}): Lowered {
  const lowered: Lowered = { set: {}, unset: [], problems: {}, words: {} };
  for (const [id, { shape, flag }] of Object.entries(parts)) {
    const text = (draft[id] ?? '').trim();
    if (text === (before[id] ?? '').trim()) continue;
    if (text === '' && shape.off) {
      lowered.set[id] = shape.off.value;
      lowered.words[id] = shape.off.words(flag);
    } else if (text === '') {
      lowered.unset.push(id);
      lowered.words[id] = ['--unset', id];
    } else
      try {
        const value = shape.read(text);
        lowered.set[id] = value;
        lowered.words[id] = shape.words(flag, value);
      } catch (error) {
        if (!(error instanceof Wrong)) throw error;
        lowered.problems[id] = error.message;
        lowered.words[id] = [flag, quoted(text)];
      }
  }
  return lowered;
}
