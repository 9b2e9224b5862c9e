// Where the page is: the path says what is shown, the query how.
import { useMemo, useSyncExternalStore } from 'react';

const listeners = new Set<() => void>();

function subscribe(listener: () => void) {
  listeners.add(listener);
  window.addEventListener('popstate', listener);
  return () => {
    listeners.delete(listener);
    window.removeEventListener('popstate', listener);
  };
}

export function go(to: string, how: 'push' | 'replace' = 'push') {
  if (to === window.location.pathname + window.location.search) return;
  if (how === 'push') window.history.pushState(null, '', to);
  else window.history.replaceState(null, '', to);
  for (const listener of listeners) listener();
}

export interface Place {
  path: string;
  /** The parts of the path, decoded. */
  parts: string[];
  query: URLSearchParams;
}

const href = () => window.location.pathname + window.location.search;

export function usePlace(): Place {
  const at = useSyncExternalStore(subscribe, href);
  return useMemo(() => {
    const url = new URL(at, window.location.origin);
    const parts = url.pathname.split('/').filter(Boolean).map(decode);
    return { path: url.pathname, parts, query: url.searchParams };
  }, [at]);
}

function decode(part: string) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

/** The place that is shown, with another path or other parameters. An empty value removes a parameter. */
export function here(path: string | null, query: Record<string, string | null> = {}): string {
  const params = new URLSearchParams(window.location.search);
  for (const [name, value] of Object.entries(query)) {
    if (value === null || value === '') params.delete(name);
    else params.set(name, value);
  }
  const text = params.toString();
  return (path ?? window.location.pathname) + (text === '' ? '' : `?${text}`);
}
