// What is asked for when somebody looks, and again when they changed it.
import { useCallback, useEffect, useRef, useState } from 'react';
import { get } from '../api/client.ts';
import { type Trouble, trouble } from './failure.tsx';

export interface Loaded<T> {
  /** Null until it is there. */
  items: T[] | null;
  problem: Trouble | null;
  reload: () => Promise<void>;
}

/** A list of the API; nothing, when it is not wanted. */
export function useLoaded<T>(path: string, wanted = true): Loaded<T> {
  const [items, setItems] = useState<T[] | null>(null);
  const [problem, setProblem] = useState<Trouble | null>(null);
  // An answer that comes after a later question says what was.
  const asked = useRef(0);
  const reload = useCallback(async () => {
    if (!wanted) return;
    asked.current += 1;
    const turn = asked.current;
    try {
      const list = await get<{ items: T[] }>(path);
      if (turn !== asked.current) return;
      setItems(list.items);
      setProblem(null);
    } catch (error) {
      if (turn === asked.current) setProblem(trouble(error));
    }
  }, [path, wanted]);
  useEffect(() => void reload(), [reload]);
  return { items, problem, reload };
}
