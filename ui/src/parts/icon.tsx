// The few pictures there are. They say nothing that words do not say beside them, so readers of screens skip them.

const PATHS = {
  overview: 'M3 3h6v8H3zM11 3h6v4h-6zM11 9h6v8h-6zM3 13h6v4H3z',
  workloads: 'M3 5h14M3 10h14M3 15h9',
  projects: 'M3 6.500V15.500a1 1 0 0 0 1 1h12a1 1 0 0 0 1-1V7.500a1 1 0 0 0-1-1h-6l-2-2.500H4a1 1 0 0 0-1 1z',
  nodes: 'M3 4h14v5H3zM3 11h14v5H3zM6 6.500h.01M6 13.500h.01',
  analytics: 'M3 16.500h14M5 13l3-4 3 2.500L16 5',
  activity: 'M2.500 10.500h3.500l2-5.500 4 10 2-4.500h3.500',
  settings:
    'M10 12.500a2.500 2.500 0 1 0 0-5 2.500 2.500 0 0 0 0 5zM10 2.500v2M10 15.500v2M2.500 10h2M15.500 10h2M4.700 4.700l1.400 1.400M13.900 13.900l1.400 1.400M4.700 15.300l1.400-1.400M13.900 6.100l1.400-1.400',
  terminal: 'M3 4h14v12H3zM6 8l2.500 2.500L6 13M10.500 13h3.500',
  people:
    'M7.500 9.500a2.750 2.750 0 1 0 0-5.500 2.750 2.750 0 0 0 0 5.500zM2.500 16c.4-2.900 2.300-4.300 5-4.300s4.600 1.400 5 4.300M13 9.300a2.400 2.400 0 1 0-.8-4.600M14.300 11.900c1.900.3 3 1.500 3.300 3.600',
  close: 'M5 5l10 10M15 5L5 15',
  plus: 'M10 4v12M4 10h12',
  search: 'M9 14.500a5.500 5.500 0 1 0 0-11 5.500 5.500 0 0 0 0 11zM13 13l4 4',
  copy: 'M7 7h9v9H7zM4 13V4h9',
  down: 'M5 8l5 5 5-5',
  up: 'M5 12l5-5 5 5',
  left: 'M12 5l-5 5 5 5',
  right: 'M8 5l5 5-5 5',
  pause: 'M7 4.500v11M13 4.500v11',
  play: 'M6 4.500l9 5.500-9 5.500z',
  trash: 'M4 6h12M8 6V4h4v2M6 6l.700 10.500h6.600L14 6',
  clone: 'M7 7h9v9H7zM4 13V4h9M11.500 9.500v4M9.500 11.500h4',
  file: 'M10 3v9M6.500 8.500L10 12l3.500-3.500M4 16.500h12',
  page: 'M8 4H4v12h12v-4M11 4h5v5M16 4l-7 7',
  columns: 'M3 4h14v12H3zM8 4v12M12.500 4v12',
  warning: 'M10 3l7.500 13.500h-15zM10 8v4M10 14.300v.01',
  sun: 'M10 13a3 3 0 1 0 0-6 3 3 0 0 0 0 6zM10 2.500v1.800M10 15.700v1.800M2.500 10h1.800M15.700 10h1.800M4.700 4.700L6 6M14 14l1.300 1.300M4.700 15.300L6 14M14 6l1.300-1.300',
  moon: 'M16 11.500A6.500 6.500 0 0 1 8.500 4a6.500 6.500 0 1 0 7.500 7.500z',
  edit: 'M4 16l.700-3L13 4.700l2.300 2.300L7 15.300zM11.500 6.200l2.300 2.300',
  link: 'M8.500 11.500a3 3 0 0 0 4.300 0l2.700-2.700a3 3 0 0 0-4.300-4.300l-1 1M11.500 8.500a3 3 0 0 0-4.300 0l-2.700 2.700a3 3 0 0 0 4.300 4.300l1-1',
} as const;

export type IconName = keyof typeof PATHS;

export function Icon({ name, size = 16 }: { name: IconName; size?: number }) {
  return (
    <svg className="icon" width={size} height={size} viewBox="0 0 20 20" aria-hidden="true" focusable="false">
      <path d={PATHS[name]} />
    </svg>
  );
}
