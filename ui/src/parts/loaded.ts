// What is asked for when somebody looks, and again when they changed it.
import { useCallback, useEffect, useState } from 'react';
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
  const reload = useCallback(async () => {
    if (!wanted) return;
    try {
      setItems((await get<{ items: T[] }>(path)).items);
      setProblem(null);
    } catch (error) {
      setProblem(trouble(error));
    }
  }, [path, wanted]);
  useEffect(() => void reload(), [reload]);
  return { items, problem, reload };
}
