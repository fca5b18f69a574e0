// MALLET as built.py asks for it: text, variance of the prior, evaluations, pairs of labels ("all" or "seen").
import cc.mallet.fst.*;
import cc.mallet.optimize.LimitedMemoryBFGS;
import cc.mallet.pipe.iterator.LineGroupIterator;
import cc.mallet.types.InstanceList;
import java.lang.management.ManagementFactory;
import java.util.regex.Pattern;

public class Peer {
    static double cpu() {
        var system = (com.sun.management.OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
        return system.getProcessCpuTime() / 1e9;
    }

    public static void main(String[] given) throws Exception {
        var pipe = new SimpleTagger.SimpleTaggerSentence2FeatureVectorSequence();
        var train = new InstanceList(pipe);
        var file = new java.io.FileReader(given[0]);
        train.addThruPipe(new LineGroupIterator(file, Pattern.compile("^\\s*$"), true));
        var crf = new CRF(pipe, null);
        if (given[3].equals("all"))
            crf.addFullyConnectedStatesForThreeQuarterLabels(train);
        else
            crf.addStatesForThreeQuarterLabelsConnectedAsIn(train);
        crf.setWeightsDimensionAsIn(train, false);
        var objective = new CRFOptimizableByLabelLikelihood(crf, train) {
            int left = Integer.parseInt(given[2]);

            protected double getExpectationValue() {
                double value = super.getExpectationValue();
                System.out.println("evaluation " + cpu() + " " + value);
                if (--left == 0) System.exit(0);
                return value;
            }
        };
        objective.setGaussianPriorVariance(Double.parseDouble(given[1]));
        System.out.println("weights " + objective.getNumParameters());
        new LimitedMemoryBFGS(objective).optimize();
    }
}
