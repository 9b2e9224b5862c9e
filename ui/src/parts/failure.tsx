// What went wrong, and what to do about it.
import { Failure } from '../api/client.ts';

export interface Trouble {
  detail: string;
  hint?: string | null;
  field?: string | null;
}

export function trouble(error: unknown): Trouble {
  if (error instanceof Failure) {
    if (error.isUnreachable) {
      return {
        detail: 'The server does not answer.',
        hint: 'Is it running? `berth status` tells; `berth up` starts it.',
      };
    }
    return error.problem;
  }
  return { detail: error instanceof Error ? error.message : String(error) };
}

export function TroubleNote({ of }: { of: Trouble | null }) {
  if (of === null) return null;
  return (
    <div className="note bad" role="alert">
      <p>{sentence(of.detail)}</p>
      {of.hint && <p className="dim">{sentence(of.hint)}</p>}
    </div>
  );
}

/** The API speaks in clauses; a note is a sentence. */
export function sentence(text: string) {
  // A name at its beginning is written as it is.
  const isName = /^[^\s/]+\/\S/.test(text);
  const begun = isName ? text : text.charAt(0).toUpperCase() + text.slice(1);
  return /[.!?`]$/.test(begun) ? begun : `${begun}.`;
}
