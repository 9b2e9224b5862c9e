// The smallest parts: a link, a button, a status, a time, a project.
import { type MouseEvent, type ReactNode, useState, useSyncExternalStore } from 'react';
import { serverNow } from '../api/client.ts';
import type { Status } from '../api/types.ts';
import { colour } from '../model/colours.ts';
import { ago, exact } from '../model/format.ts';
import { go } from '../model/router.ts';
import { mood } from '../model/status.ts';
import { Icon, type IconName } from './icon.tsx';

export function Link(props: {
  to: string;
  children: ReactNode;
  className?: string;
  title?: string;
  label?: string;
  current?: boolean;
}) {
  const follow = (event: MouseEvent) => {
    if (
      event.defaultPrevented ||
      event.button !== 0 ||
      event.metaKey ||
      event.ctrlKey ||
      event.shiftKey ||
      event.altKey
    ) {
      return;
    }
    event.preventDefault();
    go(props.to);
  };
  return (
    <a
      href={props.to}
      onClick={follow}
      className={props.className}
      title={props.title}
      aria-label={props.label}
      aria-current={props.current ? 'page' : undefined}
    >
      {props.children}
    </a>
  );
}

export function Button(props: {
  children?: ReactNode;
  icon?: IconName;
  label?: string;
  kind?: 'primary' | 'danger' | 'plain';
  small?: boolean;
  type?: 'submit' | 'button';
  disabled?: boolean;
  pressed?: boolean;
  onClick?: () => void;
}) {
  const bare = props.children === undefined;
  return (
    <button
      type={props.type ?? 'button'}
      className={`button ${props.kind ?? ''} ${props.small ? 'small' : ''} ${bare ? 'bare' : ''}`}
      aria-label={props.label}
      title={bare ? props.label : undefined}
      aria-pressed={props.pressed}
      disabled={props.disabled}
      onClick={props.onClick}
    >
      {props.icon && <Icon name={props.icon} />}
      {props.children}
    </button>
  );
}

const WORDS: Partial<Record<Status, string>> = { BackOff: 'Back-off', TimedOut: 'Timed out' };

export function StatusLabel({ status }: { status: Status }) {
  return <span className={`status ${mood(status)}`}>{WORDS[status] ?? status}</span>;
}

export function ProjectName({ name, to }: { name: string; to?: string }) {
  const text = (
    <>
      <i className="swatch" style={{ background: colour(name) }} />
      {name}
    </>
  );
  return to === undefined ? (
    <span className="project">{text}</span>
  ) : (
    <Link className="project" to={to}>
      {text}
    </Link>
  );
}

let second = serverNow();
const clocks = new Set<() => void>();
setInterval(() => {
  second = serverNow();
  for (const clock of clocks) clock();
}, 1000);

function watchClock(clock: () => void) {
  clocks.add(clock);
  return () => clocks.delete(clock);
}

/** The time, by the second or in longer steps. Only what shows a time should ask. */
export function useNow(stepMs = 1000): number {
  return useSyncExternalStore(watchClock, () =>
    stepMs === 1000 ? second : Math.floor(second / stepMs) * stepMs,
  );
}

export function Ago({ at }: { at: string | null | undefined }) {
  const now = useNow();
  if (!at) return <span className="dim">–</span>;
  return (
    <time dateTime={at} title={exact(at)}>
      {ago(at, now)}
    </time>
  );
}

/** Something that is worked out anew each second. */
export function Ticking({ show, title }: { show: (now: number) => string; title?: string }) {
  return <span title={title}>{show(useNow())}</span>;
}

export function Copyable({ text, label }: { text: string; label?: string }) {
  const [copied, setCopied] = useState(false);
  const copy = () => {
    // Without a safe connection a browser has no clipboard for pages; the text can be marked by hand.
    void navigator.clipboard?.writeText(text).then(() => {
      setCopied(true);
      setTimeout(() => setCopied(false), 1500);
    });
  };
  return (
    <div className="copyable">
      <code>{text}</code>
      <button type="button" onClick={copy} aria-label={label ?? `Copy ${text}`}>
        {copied ? 'Copied' : <Icon name="copy" />}
      </button>
    </div>
  );
}

export function Empty({ title, children }: { title: string; children?: ReactNode }) {
  return (
    <div className="empty">
      <p className="empty-title">{title}</p>
      {children}
    </div>
  );
}

/** A part of the whole as a bar with its number. */
export function Meter({
  part,
  label,
  tone,
}: {
  part: number | null;
  label: string;
  tone?: 'good' | 'plain';
}) {
  if (part === null) return <span className="dim">–</span>;
  const width = Math.max(0, Math.min(100, part));
  return (
    <span className="meter" role="img" aria-label={`${label} ${Math.round(part)} %`}>
      <span className="meter-track">
        <span className={`meter-fill ${tone ?? ''}`} style={{ width: `${width}%` }} />
      </span>
      <span className="meter-number" aria-hidden="true">
        {Math.round(part)} %
      </span>
    </span>
  );
}
