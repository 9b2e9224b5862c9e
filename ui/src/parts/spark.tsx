/** A line so small that it only shows the way something goes. */
export function Spark({ values, label }: { values: number[]; label: string }) {
  if (values.length < 3) return <svg className="spark" viewBox="0 0 100 24" aria-hidden="true" />;
  const low = Math.min(...values);
  const high = Math.max(...values);
  const size = high - low || 1;
  const points = values.map(
    (value, index) => `${(index / (values.length - 1)) * 100},${22 - ((value - low) / size) * 20}`,
  );
  return (
    <svg className="spark" viewBox="0 0 100 24" preserveAspectRatio="none" role="img" aria-label={label}>
      <polyline points={points.join(' ')} />
    </svg>
  );
}
